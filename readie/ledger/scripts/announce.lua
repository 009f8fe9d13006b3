-- A worker announces itself or renews its lease.
-- KEYS 1 worker, 2 workers, 3 capacity, 4 waiting, 5 submit queue, 6 catalogue
-- ARGV 1 name, 2 incarnation, 3 announcement, 4 slots, 5 lease seconds, 6 'wake' item, 7 catalogue lease seconds
-- Returns 1 when the entry is new or changed (routers were woken when calls wait), else 0.
local time = redis.call('TIME')
local changed = redis.call('HGET', KEYS[1], 'announcement') ~= ARGV[3]
redis.call('HSET', KEYS[1], 'incarnation', ARGV[2], 'announcement', ARGV[3], 'slots', ARGV[4])
redis.call('EXPIRE', KEYS[1], ARGV[5])
redis.call('ZADD', KEYS[2], time[1] + ARGV[5], ARGV[1])
redis.call('EXPIRE', KEYS[6], ARGV[7])
if not changed then return 0 end
redis.call('INCR', KEYS[3])
if redis.call('ZCARD', KEYS[4]) > 0 then redis.call('RPUSH', KEYS[5], ARGV[6]) end
return 1
