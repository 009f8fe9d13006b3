-- Let a queued call wait for capacity.
-- KEYS 1 record, 2 router's taken list
-- ARGV 1 id, 2 capacity counter the router saw before it looked for a worker, 3 taken item, 4 why it waits, 5 its group,
--      6 priority, 7 most calls that may wait
-- Returns 1 when it waits (or is past that), 0 when too many wait already: then nothing is settled.
-- Atomic, so that capacity freed between looking and parking wakes the call.
local state, attempt, submitted, group = unpack(redis.call('HMGET', KEYS[1], 'state', 'attempt', 'submitted_at', 'group'))
if state == 'queued' and not group then
    -- One that was on a worker before was accepted long ago.
    if attempt == '0' and redis.call('ZCARD', WAITING) >= tonumber(ARGV[7]) then return 0 end
    -- Higher priorities first, then older ones: ten digits are more seconds than there will be.
    local order = string.format('%.6f', submitted - ARGV[6] * 1e10)
    redis.call('ZADD', WAITING, order, ARGV[1])
    redis.call('ZADD', WAITING_GROUP .. ARGV[5], order, ARGV[1])
    redis.call('HSET', WAITING_GROUPS, ARGV[5], ARGV[4])
    redis.call('HSET', KEYS[1], 'group', ARGV[5])
end
if (redis.call('GET', CAPACITY) or '0') ~= ARGV[2] then wake() end
redis.call('LREM', KEYS[2], -1, ARGV[3])
return 1
