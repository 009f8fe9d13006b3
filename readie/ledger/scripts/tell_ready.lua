-- A worker tells which ready sandboxes it has, between two renewals of its lease.
-- KEYS 1 worker
-- ARGV 1 incarnation, 2 ready sandboxes by checkpoint
-- Returns 1 when that was noted. Atomic, so that no entry without an expiry is left of a lease that just ended.
if redis.call('HGET', KEYS[1], 'incarnation') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'ready', ARGV[2])
return 1
