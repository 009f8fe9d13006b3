-- Have a call run again whose attempt failed.
-- KEYS 1 record
-- ARGV 1 id, 2 attempt, 3 seconds to wait before, 4 why it runs again, for people
-- Returns 1 (also when it was sent before and its answer was lost), or 0 when the call has moved on or is cancelled: then nothing changes.
-- Atomic, so that an attempt leads to one further one, and a cancelled call to none.
local state, attempt, worker, message, cancelled, again =
    unpack(redis.call('HMGET', KEYS[1], 'state', 'attempt', 'worker', 'message', 'cancel_before', 'again'))
if state == 'queued' and attempt == ARGV[2] and again == ARGV[4] then return 1 end
if state ~= 'running' or attempt ~= ARGV[2] or cancelled then return 0 end
redis.call('HSET', KEYS[1], 'state', 'queued', 'again', ARGV[4])
free(worker, ARGV[1])
if tonumber(ARGV[3]) > 0 then
    local time = redis.call('TIME')
    redis.call('ZADD', DELAYED, string.format('%.6f', time[1] + time[2] / 1e6 + ARGV[3]), ARGV[1])
else
    redis.call('RPUSH', SUBMIT_QUEUE, message)
end
return 1
