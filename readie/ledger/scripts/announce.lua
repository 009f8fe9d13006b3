-- A worker announces itself or renews its lease.
-- KEYS 1 worker, 2 workers, 3 catalogue
-- ARGV 1 name, 2 incarnation, 3 announcement, 4 slots, 5 lease seconds, 6 catalogue lease seconds,
--      7 bytes of memory for all its calls, 8 bytes for a call that asks for none ('' each: not counted),
--      9 ready sandboxes by checkpoint, as JSON, 10 most sessions,
--      11 '1': idle sessions end when a call needs their room, 12 what it has and has done, as JSON, for people
-- Returns 1 when the entry is new or changed (routers were woken when calls wait), else 0. Other ready sandboxes and
-- counts are no change: no call waits for them.
local time = redis.call('TIME')
local changed = redis.call('HGET', KEYS[1], 'announcement') ~= ARGV[3]
redis.call('HSET', KEYS[1], 'incarnation', ARGV[2], 'announcement', ARGV[3], 'slots', ARGV[4], 'memory', ARGV[7],
    'default_memory', ARGV[8], 'ready', ARGV[9],
    'sessions', ARGV[10], 'evicts', ARGV[11], 'counts', ARGV[12])
redis.call('HSET', KEYS[1], 'lease', ARGV[5])
redis.call('EXPIRE', KEYS[1], ARGV[5])
redis.call('ZADD', KEYS[2], time[1] + ARGV[5], ARGV[1])
redis.call('EXPIRE', KEYS[3], ARGV[6])
if not changed then return 0 end
capacity_changed()
return 1
