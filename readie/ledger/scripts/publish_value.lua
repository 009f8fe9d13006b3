-- A worker appends a value that its call has yielded.
-- KEYS 1 record, 2 values
-- ARGV 1 id, 2 attempt, 3 number of the value in the attempt (from 1), 4 value, 5 bytes of all values of the attempt until now,
--      6 and 7 how many values (how many bytes of them) may wait to be taken, 8 seconds to keep them
-- Returns {values taken, their bytes, '1' when no more are wanted}, or false when the attempt is not (or no longer) the one that
-- runs: then nothing changes. Sent again, it changes nothing.
-- Atomic, so that nothing of a stale attempt appears, and a reader and a worker that wait are told of each other.
local state, attempt, listeners, yielding, taken, taken_bytes, stop = unpack(redis.call(
    'HMGET', KEYS[1], 'state', 'attempt', 'listeners', 'values_attempt', 'taken', 'taken_bytes', 'stop'))
if state ~= 'running' or attempt ~= ARGV[2] then return false end
if yielding ~= attempt then
    redis.call('DEL', KEYS[2])
    redis.call('HSET', KEYS[1], 'values_attempt', attempt, 'taken', '0', 'taken_bytes', '0')
    taken, taken_bytes = '0', '0'
end
local added = redis.pcall('XADD', KEYS[2], attempt .. '-' .. ARGV[3], 'value', ARGV[4])
if added.err and not string.find(added.err, 'equal or smaller', 1, true) then return added end
redis.call('EXPIRE', KEYS[2], ARGV[8])
note_stall(KEYS[1], ARGV[3] - taken, ARGV[5] - taken_bytes, ARGV[6], ARGV[7])
tell_listeners(KEYS[1], ARGV[1], listeners)
return {taken, taken_bytes, stop or ''}
