-- A router renews its lease.
-- KEYS 1 routers
-- ARGV 1 router, 2 lease seconds
-- Returns the time its lease ends (Redis clock, seconds).
local ends = redis.call('TIME')[1] + ARGV[2]
redis.call('ZADD', KEYS[1], ends, ARGV[1])
return ends
