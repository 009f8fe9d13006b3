-- Stands before every script, for those that end sessions. They check the session's state first.
-- spared: call that ends by itself; ending: {result before, after the end time, seconds to keep it} of the others
local function end_session(session_id, state, why, keep, spared, ending)
    local session = SESSION .. session_id
    local call, sandbox, worker, incarnation = unpack(redis.call('HMGET', session, 'call', 'sandbox', 'worker', 'incarnation'))
    redis.call('HSET', session, 'state', state, 'why', why, 'call', '', 'ended_at', clock())
    redis.call('EXPIRE', session, keep)
    redis.call('ZREM', SESSIONS, session_id)
    if sandbox then
        redis.call('SREM', WORKER_SESSIONS .. worker, session_id)
        redis.call('ZREM', WORKER_IDLE_SESSIONS .. worker, session_id)
        free_memory(worker, SESSION_MEMORY .. session_id)
        capacity_changed()
        redis.call('PUBLISH', CONTROL .. incarnation, SESSION_WORD .. sandbox)
        redis.call('DEL', SESSION_QUEUE .. sandbox)
        redis.call('LPUSH', SESSION_QUEUE .. sandbox, '')
        redis.call('EXPIRE', SESSION_QUEUE .. sandbox, 60)
    end
    local ids = redis.call('LRANGE', SESSION_CALLS .. session_id, 0, -1)
    redis.call('DEL', SESSION_CALLS .. session_id)
    if call and call ~= '' and call ~= spared then ids[#ids + 1] = call end
    for _, id in ipairs(ids) do
        local status, submitted, host, its_incarnation =
            unpack(redis.call('HMGET', CALL .. id, 'state', 'submitted_at', 'worker', 'incarnation'))
        if status == 'queued' or status == 'placed' or status == 'running' then
            if not sandbox and host then redis.call('SREM', WORKER_SESSIONS .. host, session_id) end
            -- One that runs is stopped; what its sandbox was to be is of no use.
            if status == 'running' then redis.call('PUBLISH', CONTROL .. its_incarnation, id) end
            local before = string.gsub(string.gsub(ending[1], '@call@', id), '@submitted@', submitted)
            end_call(id, 'failed', before, ending[2], ending[3])
        end
    end
end
