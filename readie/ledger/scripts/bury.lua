-- Keep what can't be read for people to see.
-- KEYS 1 dead letters
-- ARGV 1 letter, 2 most to keep
-- Returns 1. Atomic, so that there are never more.
redis.call('LPUSH', KEYS[1], ARGV[1])
redis.call('LTRIM', KEYS[1], 0, ARGV[2] - 1)
return 1
