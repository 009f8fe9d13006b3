-- Stands before every script, for those that end calls. They check the call's state first.
-- before, after: result before and after the end time; keep: seconds to keep it
-- Returns the end time as text.
local function end_call(id, state, before, after, keep)
    local record = CALL .. id
    local reply, worker, group, session, awaits_turn =
        unpack(redis.call('HMGET', record, 'reply', 'worker', 'group', 'session', 'awaits_turn'))
    local now = clock()
    local result = before .. now .. after
    redis.call('HSET', record, 'state', state, 'ended_at', now)
    redis.call('HDEL', record, 'awaits_turn', 'group', 'expires_at', 'cancel_before', 'cancel_after', 'again',
        'listeners', 'stalled', 'stop', 'why')
    redis.call('EXPIRE', record, keep)
    redis.call('SET', RESULT .. id, result, 'EX', keep)
    redis.call('EXPIRE', OUTPUT .. id, keep)
    redis.call('EXPIRE', VALUES .. id, keep)
    redis.call('DEL', PAYLOAD .. id, MESSAGE .. id)
    redis.call('ZREM', PENDING, id)
    redis.call('ZREM', EXPIRIES, id)
    redis.call('ZREM', DELAYED, id)
    leave_waiting(id, group)
    redis.call('PUBLISH', RESULT .. id, result)
    for client in string.gmatch(reply, '%S+') do
        -- The record may have been written by another user than the one who hears there.
        local owner = string.match(client, '^([^.]*)%.')
        if not owner or owner == string.match(id, '^([^.]*)%.') then redis.call('PUBLISH', REPLIES .. client, result) end
    end
    if worker then free(worker, id) end
    leave_session(id, session, awaits_turn, worker)
    return now
end
