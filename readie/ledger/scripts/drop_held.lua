-- Free the slot of a call whose record is not one of ours.
-- ARGV 1 worker, 2 id
free(ARGV[1], ARGV[2])
return 1
