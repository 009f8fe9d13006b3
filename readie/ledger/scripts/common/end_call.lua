-- Stands before every script, for those that end calls. They check the call's state first.
-- KEYS 1 record, 2 result, 3 payload, 4 pending
-- before, after: result before and after the end time; keep: seconds to keep it
-- Returns the end time as text.
local function end_call(id, state, before, after, keep)
    local reply, worker, group = unpack(redis.call('HMGET', KEYS[1], 'reply', 'worker', 'group'))
    local time = redis.call('TIME')
    local now = string.format('%d.%06d', time[1], time[2])
    local result = before .. now .. after
    redis.call('HSET', KEYS[1], 'state', state, 'ended_at', now)
    redis.call('HDEL', KEYS[1], 'message', 'group', 'expires_at', 'cancel_before', 'cancel_after', 'again',
        'listeners', 'stalled', 'stop')
    redis.call('EXPIRE', KEYS[1], keep)
    redis.call('SET', KEYS[2], result, 'EX', keep)
    redis.call('EXPIRE', OUTPUT .. id, keep)
    redis.call('EXPIRE', VALUES .. id, keep)
    redis.call('DEL', KEYS[3])
    redis.call('ZREM', KEYS[4], id)
    redis.call('ZREM', EXPIRIES, id)
    redis.call('ZREM', DELAYED, id)
    leave_waiting(id, group)
    redis.call('PUBLISH', KEYS[2], result)
    for client in string.gmatch(reply, '%S+') do redis.call('PUBLISH', REPLIES .. client, result) end
    if worker then free(worker, id) end
    return now
end
