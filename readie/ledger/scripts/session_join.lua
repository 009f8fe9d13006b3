-- A call comes to its session: to open it, to run in it now, or to wait for its turn.
-- KEYS 1 record, 2 session, 3 router's taken list
-- ARGV 1 id, 2 attempt (the number of the one to place), 3 session's id, 4 sandbox that the caller knows the session by (''
--      any), 5 '1': open it if there is none, 6 '1': open it again if it was lost, 7 its idle time in seconds, 8 sandbox that
--      the router knows the session by ('' when it knows none), 9 the message, addressed to that one's worker, 10 taken item ('' when it
--      came from waiting), 11 most calls that may wait for their turn, 12 item that the call was read from ('' unknown)
-- Returns {outcome, ...}:
--   {'open', why it was lost before or ''}: the call is the one that opens it; nothing is settled
--   {'owner', worker, incarnation, sandbox, checkpoint, asked-for checkpoint, flavor, python, memory, GPU}: the router knows another one
--   {'placed', time}, {'waits'}: the item is settled
--   {'ended', state, why}, {'unknown'}, {'many'}: the call can't run; nothing is settled
--   {'moved', attempt or -1}: as place.lua
-- Atomic, so that callers who open a session at once get one sandbox, and a session runs one call at a time.
local state, attempt, group, awaits_turn = unpack(redis.call('HMGET', KEYS[1], 'state', 'attempt', 'group', 'awaits_turn'))
local submitted = redis.call('HGET', MESSAGE .. ARGV[1], 'submitted')
local function settle()
    if ARGV[10] ~= '' then redis.call('LREM', KEYS[3], -1, ARGV[10]) end
end
if ARGV[12] ~= '' and submitted and submitted ~= ARGV[12] then
    settle()
    redis.call('INCR', FORGED)
    return {'moved', -1}
end
if state ~= 'queued' or tonumber(attempt) ~= tonumber(ARGV[2]) - 1 then
    if state == 'queued' then return {'moved', tonumber(attempt)} end
    settle()
    return {'moved', -1}
end
if awaits_turn then
    settle()
    return {'waits'}
end
local session = redis.call('HMGET', KEYS[2], 'state', 'call', 'sandbox', 'worker', 'incarnation', 'why', 'restarted')
local status, call, sandbox, worker, incarnation, why, restarted = unpack(session)
local now = clock()
if not live(status) then
    local lost = ''
    if status == 'lost' and ARGV[6] == '1' then
        lost = why
    elseif status then
        return {'ended', status, why}
    elseif ARGV[5] ~= '1' or ARGV[4] ~= '' then
        return {'unknown'}
    end
    redis.call('DEL', KEYS[2])
    redis.call('HSET', KEYS[2], 'state', 'opening', 'call', ARGV[1], 'opened_at', now, 'last_used_at', now, 'idle_ttl_seconds',
        ARGV[7], 'restarted', lost)
    redis.call('ZADD', SESSIONS, now, ARGV[3])
    redis.call('HSET', KEYS[1], 'session', ARGV[3])
    return {'open', lost}
end
if ARGV[4] ~= '' and sandbox ~= ARGV[4] then return {'unknown'} end
if not sandbox and call == ARGV[1] then return {'open', restarted} end
if sandbox and sandbox ~= ARGV[8] then
    return {'owner', worker, incarnation, sandbox,
        unpack(redis.call('HMGET', KEYS[2], 'checkpoint_id', 'asked', 'flavor', 'python', 'memory_bytes', 'gpu'))}
end
local turn = call == ARGV[1] or status == 'idle'
if not turn and redis.call('LLEN', SESSION_CALLS .. ARGV[3]) >= tonumber(ARGV[11]) then return {'many'} end
redis.call('HSET', KEYS[1], 'session', ARGV[3])
if group then
    leave_waiting(ARGV[1], group)
    redis.call('HDEL', KEYS[1], 'group')
end
settle()
if turn then
    redis.call('HSET', KEYS[2], 'state', 'busy', 'call', ARGV[1], 'last_used_at', now)
    redis.call('ZREM', WORKER_IDLE_SESSIONS .. worker, ARGV[3])
    send_to_session(ARGV[1], ARGV[2], worker, incarnation, sandbox, ARGV[9], now)
    return {'placed', now}
end
redis.call('RPUSH', SESSION_CALLS .. ARGV[3], ARGV[1])
redis.call('HSET', KEYS[1], 'awaits_turn', '1')
if sandbox then redis.call('HSET', MESSAGE .. ARGV[1], 'addressed', ARGV[9]) end
return {'waits'}
