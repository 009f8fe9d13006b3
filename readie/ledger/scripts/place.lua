-- Give a queued call to a worker: reserves one of its slots, and memory, and sends the message to its queue.
-- KEYS 1 record, 2 worker, 3 worker's calls, 4 worker's reserved memory, 5 worker's queue, 6 router's taken list
-- ARGV 1 id, 2 attempt (this one's number), 3 worker's incarnation, 4 worker's name, 5 message, 6 taken item ('' when it came from waiting),
--      7 bytes of memory the call asks for ('' for what the worker gives by itself), 8 session that the call opens ('' none),
--      9 how it shall start and why, as JSON, for people, 10 item that the call was read from ('' unknown)
-- Returns {outcome, detail}: {'placed', time}, {'full'}, {'gone'} (worker's lease ended or it restarted), or
-- {'moved', attempt or -1} (the call is past this: the message is settled; with the record's attempt when it is still queued).
-- Atomic, so that a slot and a byte are given once and a call is on one worker only.
local state, attempt, group = unpack(redis.call('HMGET', KEYS[1], 'state', 'attempt', 'group'))
local submitted = redis.call('HGET', MESSAGE .. ARGV[1], 'submitted')
if ARGV[10] ~= '' and submitted and submitted ~= ARGV[10] then
    if ARGV[6] ~= '' then redis.call('LREM', KEYS[6], -1, ARGV[6]) end
    redis.call('INCR', FORGED)
    return {'moved', -1}
end
if state ~= 'queued' or tonumber(attempt) ~= tonumber(ARGV[2]) - 1 then
    if state == 'queued' then return {'moved', tonumber(attempt)} end
    if ARGV[6] ~= '' then redis.call('LREM', KEYS[6], -1, ARGV[6]) end
    return {'moved', -1}
end
local incarnation, slots, memory, default, sessions, evicts =
    unpack(redis.call('HMGET', KEYS[2], 'incarnation', 'slots', 'memory', 'default_memory', 'sessions', 'evicts'))
if incarnation ~= ARGV[3] then return {'gone'} end
if redis.call('ZCARD', KEYS[3]) >= tonumber(slots) then return {'full'} end
local function make_room()
    local idle = evicts == '1' and redis.call('ZRANGE', WORKER_IDLE_SESSIONS .. ARGV[4], 0, 0)[1]
    if not idle then return false end
    -- No call runs or waits in it that would have to be told.
    end_session(idle, 'expired', 'was idle for longest when another call needed its room', EVICTED_SECONDS, '', {'', '', 1})
    return true
end
while ARGV[8] ~= '' and redis.call('SCARD', WORKER_SESSIONS .. ARGV[4]) >= tonumber(sessions) do
    if not make_room() then return {'full'} end
end
local needed = tonumber(ARGV[7]) or tonumber(default) or 0
memory = tonumber(memory)
if memory and needed > 0 then
    while (tonumber(redis.call('HGET', KEYS[4], TOTAL)) or 0) + needed > memory do
        if not make_room() then return {'full'} end
    end
    redis.call('HSET', KEYS[4], ARGV[1], string.format('%d', needed))
    redis.call('HINCRBY', KEYS[4], TOTAL, string.format('%d', needed))
end
local time = redis.call('TIME')
local now = string.format('%d.%06d', time[1], time[2])
redis.call('HSET', KEYS[1], 'state', 'placed', 'attempt', ARGV[2], 'worker', ARGV[4], 'incarnation', ARGV[3], 'placed_at', now,
    'why', ARGV[9])
redis.call('ZADD', KEYS[3], now, ARGV[1])
if ARGV[8] ~= '' then redis.call('SADD', WORKER_SESSIONS .. ARGV[4], ARGV[8]) end
redis.call('LPUSH', KEYS[5], ARGV[5])
if group then
    turn_has_come(ARGV[1])
    leave_waiting(ARGV[1], group)
    redis.call('HDEL', KEYS[1], 'group')
end
if ARGV[6] ~= '' then redis.call('LREM', KEYS[6], -1, ARGV[6]) end
return {'placed', now}
