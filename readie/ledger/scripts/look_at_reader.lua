-- A worker looks how far the reader of its call's values is.
-- KEYS 1 record
-- ARGV 1 attempt, 2 values that the attempt has yielded, 3 their bytes, 4 and 5 as 6 and 7 of publish_value
-- Returns {values taken, their bytes, '1' when no more are wanted, how many connections the reader's client listens on}, or false
-- when the attempt is not (or no longer) the one that runs.
-- Atomic, so that the next step of the reader is either seen here or told later.
local state, attempt, yielding, taken, taken_bytes, stop, reader, reply = unpack(redis.call(
    'HMGET', KEYS[1], 'state', 'attempt', 'values_attempt', 'taken', 'taken_bytes', 'stop', 'reader', 'reply'))
if state ~= 'running' or attempt ~= ARGV[1] then return false end
if yielding ~= attempt then taken, taken_bytes = '0', '0' end
note_stall(KEYS[1], ARGV[2] - taken, ARGV[3] - taken_bytes, ARGV[4], ARGV[5])
reader = reader or string.match(reply, '%S+')
return {taken, taken_bytes, stop or '', redis.call('PUBSUB', 'NUMSUB', REPLIES .. reader)[2]}
