-- Let a queued call wait for capacity.
-- KEYS 1 record, 2 router's taken list
-- ARGV 1 id, 2 capacity counter the router saw before it looked for a worker, 3 taken item, 4 why it waits, 5 its group,
--      6 priority, 7 most calls that may wait, 8 its client, 9 most calls of a client that may wait,
--      10 item that the call was read from ('' unknown)
-- Returns 1 when it waits (or is past that), 0 when too many wait already, -1 when too many of its client do: then nothing is
-- settled.
-- Atomic, so that capacity freed between looking and parking wakes the call.
local state, attempt, group = unpack(redis.call('HMGET', KEYS[1], 'state', 'attempt', 'group'))
local submitted = redis.call('HGET', MESSAGE .. ARGV[1], 'submitted')
if ARGV[10] ~= '' and submitted and submitted ~= ARGV[10] then
    redis.call('LREM', KEYS[2], -1, ARGV[3])
    redis.call('INCR', FORGED)
    return 1
end
if state == 'queued' and not group then
    -- One that was on a worker before was accepted long ago.
    if attempt == '0' then
        if redis.call('ZCARD', WAITING) >= tonumber(ARGV[7]) then return 0 end
        if (tonumber(redis.call('HGET', WAITING_CLIENTS, ARGV[8])) or 0) >= tonumber(ARGV[9]) then return -1 end
    end
    -- Higher priorities first: there will never be as many turns as ten digits can count.
    local turn = next_turn(ARGV[8], ARGV[6], ARGV[5], attempt ~= '0')
    local order = string.format('%.0f', turn - ARGV[6] * PRIORITIES)
    redis.call('HSET', WAITING_OF, ARGV[1], ARGV[8])
    redis.call('HINCRBY', WAITING_CLIENTS, ARGV[8], 1)
    redis.call('ZADD', WAITING, order, ARGV[1])
    redis.call('ZADD', WAITING_GROUP .. ARGV[5], order, ARGV[1])
    redis.call('HSET', WAITING_GROUPS, ARGV[5], ARGV[4])
    redis.call('HSET', KEYS[1], 'group', ARGV[5])
end
if (redis.call('GET', CAPACITY) or '0') ~= ARGV[2] then wake() end
redis.call('LREM', KEYS[2], -1, ARGV[3])
return 1
