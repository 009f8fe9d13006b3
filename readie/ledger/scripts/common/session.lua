-- Stands before every script: what calls do to the session they belong to. A call waits in its session's list, or it is the
-- one in the session's field `call`, whose turn it is: it opens the session, runs in it, or is on its way there.

local function live(state) return state == 'opening' or state == 'idle' or state == 'busy' end

local function clock()
    local time = redis.call('TIME')
    return string.format('%d.%06d', time[1], time[2])
end

-- Sends a queued call whose turn it is to its session's sandbox, past the worker's slots.
local function send_to_session(id, attempt, worker, incarnation, sandbox, message, now)
    redis.call('HSET', CALL .. id, 'state', 'placed', 'attempt', attempt, 'worker', worker, 'incarnation', incarnation, 'placed_at', now)
    redis.call('ZADD', WORKER_SESSION_CALLS .. worker, now, id)
    redis.call('LPUSH', SESSION_QUEUE .. sandbox, message)
end

-- Gives the turn to the call that has waited longest. A session that no call has opened, or will, is forgotten.
local function hand_on(session_id)
    local session = SESSION .. session_id
    local worker, incarnation, sandbox = unpack(redis.call('HMGET', session, 'worker', 'incarnation', 'sandbox'))
    local now = clock()
    while true do
        local id = redis.call('LPOP', SESSION_CALLS .. session_id)
        if not id then break end
        local state, attempt = unpack(redis.call('HMGET', CALL .. id, 'state', 'attempt'))
        if state == 'queued' then
            local submitted, addressed = unpack(redis.call('HMGET', MESSAGE .. id, 'submitted', 'addressed'))
            redis.call('HDEL', CALL .. id, 'awaits_turn')
            redis.call('HDEL', MESSAGE .. id, 'addressed')
            redis.call('HSET', session, 'call', id, 'last_used_at', now)
            if sandbox and addressed then
                send_to_session(id, attempt + 1, worker, incarnation, sandbox, addressed, now)
            else
                -- It came while the session opened, when nobody knew where.
                redis.call('RPUSH', SUBMIT_QUEUE, submitted)
            end
            return
        end
    end
    if sandbox then
        redis.call('HSET', session, 'state', 'idle', 'call', '', 'last_used_at', now)
        redis.call('ZADD', WORKER_IDLE_SESSIONS .. worker, now, session_id)
    else
        redis.call('DEL', session)
        redis.call('ZREM', SESSIONS, session_id)
    end
end

-- Takes back that a call was to open its session on a worker, where the sandbox is not up.
local function leave_worker(id, session_id, worker)
    if not session_id or not worker then return end
    local call, sandbox = unpack(redis.call('HMGET', SESSION .. session_id, 'call', 'sandbox'))
    if call == id and not sandbox then redis.call('SREM', WORKER_SESSIONS .. worker, session_id) end
end

-- Ends a call's part in its session: the turn, if it has it, goes on.
local function leave_session(id, session_id, awaits_turn, worker)
    if not session_id then return end
    if awaits_turn then
        redis.call('LREM', SESSION_CALLS .. session_id, 1, id)
        return
    end
    local state, call = unpack(redis.call('HMGET', SESSION .. session_id, 'state', 'call'))
    if call ~= id or not live(state) then return end
    leave_worker(id, session_id, worker)
    hand_on(session_id)
end
