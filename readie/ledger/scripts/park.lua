-- Let a queued call wait for capacity.
-- KEYS 1 record, 2 waiting, 3 capacity, 4 router's taken list
-- ARGV 1 id, 2 capacity counter the router saw before it looked for a worker, 3 taken item ('' when the call waits already), 4 why it waits
-- Returns 1 when it waits (or has ended), 0 when capacity changed meanwhile and the router must look again.
-- Atomic, so that capacity freed between looking and parking wakes the call.
if (redis.call('GET', KEYS[3]) or '0') ~= ARGV[2] then return 0 end
local state, submitted = unpack(redis.call('HMGET', KEYS[1], 'state', 'submitted_at'))
if state == 'queued' then
    redis.call('ZADD', KEYS[2], submitted, ARGV[1])
    redis.call('HSET', KEYS[1], 'waits_for', ARGV[4])
end
if ARGV[3] ~= '' then redis.call('LREM', KEYS[4], -1, ARGV[3]) end
return 1
