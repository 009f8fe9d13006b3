-- End a call with its result. A result above the inline limit has its value stored before, under a key of the attempt.
-- KEYS 1 record, 2 result, 3 payload, 4 pending, 5 waiting, 6 capacity, 7 submit queue
-- ARGV 1 id, 2 attempt, 3 final state, 4 and 5 result before and after the end time, 6 seconds to keep it,
--      7 prefix of reply channels, 8 prefix of the workers' calls, 9 'wake' item
-- Returns the end time as text, or false when the call has moved on or ended: then nothing changes.
-- Atomic, so that a call ends once and whoever hears of the end finds the result.
local state, attempt, reply, worker = unpack(redis.call('HMGET', KEYS[1], 'state', 'attempt', 'reply', 'worker'))
if (state ~= 'queued' and state ~= 'placed' and state ~= 'running') or attempt ~= ARGV[2] then return false end
local time = redis.call('TIME')
local now = string.format('%d.%06d', time[1], time[2])
local result = ARGV[4] .. now .. ARGV[5]
redis.call('HSET', KEYS[1], 'state', ARGV[3], 'ended_at', now)
redis.call('HDEL', KEYS[1], 'message', 'waits_for')
redis.call('EXPIRE', KEYS[1], ARGV[6])
redis.call('SET', KEYS[2], result, 'EX', ARGV[6])
redis.call('DEL', KEYS[3])
redis.call('ZREM', KEYS[4], ARGV[1])
redis.call('ZREM', KEYS[5], ARGV[1])
redis.call('PUBLISH', KEYS[2], result)
for client in string.gmatch(reply, '%S+') do redis.call('PUBLISH', ARGV[7] .. client, result) end
if worker and redis.call('ZREM', ARGV[8] .. worker, ARGV[1]) == 1 then
    redis.call('INCR', KEYS[6])
    if redis.call('ZCARD', KEYS[5]) > 0 then redis.call('RPUSH', KEYS[7], ARGV[9]) end
end
return now
