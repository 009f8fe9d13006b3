-- End a call with its result. A result above the inline limit has its value stored before, under a key of the attempt.
-- KEYS 1 record
-- ARGV 1 id, 2 attempt, 3 final state, 4 and 5 result before and after the end time, 6 seconds to keep it,
--      7 '1' to leave a call alone that has begun, 8 token: an end that is sent again (its answer was lost) has the same
-- Returns {end time as text, final state}, or false when the call has moved on or ended: then nothing changes. A call that was
-- cancelled while it ran ends as cancelled, whatever its worker says.
-- Atomic, so that a call ends once and whoever hears of the end finds the result.
local state, attempt, before, after, again, token, ended = unpack(redis.call(
    'HMGET', KEYS[1], 'state', 'attempt', 'cancel_before', 'cancel_after', 'again', 'end_token', 'ended_at'))
if token == ARGV[8] then return {ended, state} end
-- After 'again', whoever ran this attempt has no say any more: it is to run again.
if (state ~= 'queued' and state ~= 'placed' and state ~= 'running') or attempt ~= ARGV[2]
    or (state == 'queued' and again and ARGV[7] ~= '1') then
    redis.call('INCR', STALE)
    return false
end
if state == 'running' and ARGV[7] == '1' then return false end
redis.call('HSET', KEYS[1], 'end_token', ARGV[8])
if before and ARGV[3] ~= 'cancelled' then return {end_call(ARGV[1], 'cancelled', before, after, ARGV[6]), 'cancelled'} end
return {end_call(ARGV[1], ARGV[3], ARGV[4], ARGV[5], ARGV[6]), ARGV[3]}
