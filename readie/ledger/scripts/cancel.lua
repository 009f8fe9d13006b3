-- Cancel a call: one that has not begun ends here, the worker of a running one is told to stop it.
-- KEYS 1 record
-- ARGV 1 id, 2 and 3 result before and after the end time, 4 seconds to keep it, 5 prefix of the workers' control channels,
--      6 '1' to stop a running one
-- Returns 'cancelled', 'stopping', 'running' (it is left alone), or 'ended' (or there is no record): nothing changes.
-- Atomic, so that a worker that begins the call at this moment either has it and hears of it, or has lost it.
local state, incarnation = unpack(redis.call('HMGET', KEYS[1], 'state', 'incarnation'))
if state == 'queued' or state == 'placed' then
    end_call(ARGV[1], 'cancelled', ARGV[2], ARGV[3], ARGV[4])
    return 'cancelled'
end
if state ~= 'running' then return 'ended' end
if ARGV[6] ~= '1' then return 'running' end
redis.call('HSET', KEYS[1], 'cancel_before', ARGV[2], 'cancel_after', ARGV[3])
redis.call('PUBLISH', ARGV[5] .. incarnation, ARGV[1])
return 'stopping'
