-- Have a call run again whose attempt failed.
-- KEYS 1 record
-- ARGV 1 id, 2 attempt, 3 seconds to wait before, 4 why it runs again, for people
-- Returns 1 (also when it was sent before and its answer was lost), or 0 when the call has moved on or is cancelled: then nothing changes.
-- Atomic, so that an attempt leads to one further one, and a cancelled call to none.
local state, attempt, worker, cancelled, again =
    unpack(redis.call('HMGET', KEYS[1], 'state', 'attempt', 'worker', 'cancel_before', 'again'))
if state == 'queued' and attempt == ARGV[2] and again then
    return redis.call('HGET', MESSAGE .. ARGV[1], 'again') == ARGV[4] and 1 or 0
end
if state ~= 'running' or attempt ~= ARGV[2] or cancelled then return 0 end
redis.call('HSET', KEYS[1], 'state', 'queued', 'again', '1')
redis.call('HSET', MESSAGE .. ARGV[1], 'again', ARGV[4])
free(worker, ARGV[1])
if tonumber(ARGV[3]) > 0 then
    local time = redis.call('TIME')
    redis.call('ZADD', DELAYED, string.format('%.6f', time[1] + time[2] / 1e6 + ARGV[3]), ARGV[1])
else
    redis.call('RPUSH', SUBMIT_QUEUE, redis.call('HGET', MESSAGE .. ARGV[1], 'submitted'))
end
return 1
