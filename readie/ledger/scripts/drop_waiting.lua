-- Take a call that can't be placed out of the waiting ones.
-- ARGV 1 id, 2 group it was found in
leave_waiting(ARGV[1], ARGV[2])
return 1
