-- Keep what can't be read for people to see.
-- KEYS none
-- ARGV 1 letter, 2 most to keep, 3 '1' for one that was not signed as it must be
-- Returns 1. Atomic, so that there are never more.
redis.call('LPUSH', DEAD_LETTERS, ARGV[1])
redis.call('LTRIM', DEAD_LETTERS, 0, ARGV[2] - 1)
if ARGV[3] == '1' then redis.call('INCR', FORGED) end
return 1
