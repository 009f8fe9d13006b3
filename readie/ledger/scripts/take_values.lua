-- A reader says what it has taken of a call's values, and gets the next ones.
-- KEYS 1 record, 2 values
-- ARGV 1 id, 2 reader's client, 3 attempt whose values it reads ('' for one that begins where the last reader stopped),
--      4 values it had taken when it last said so, 5 values it has taken now, 6 bytes of those between, 7 most values to return
-- Returns {state ('' when the record is gone), attempt, values taken, entries}, or an error: RESTARTED when another attempt has
-- begun after values were taken, ELSEWHERE when somebody else reads them. Sent again, it takes nothing twice.
-- Atomic, so that a value is either returned here or told later, and a worker that waits for the reader is told.
local state, listeners, attempt, taken, reader, stalled, incarnation = unpack(redis.call(
    'HMGET', KEYS[1], 'state', 'listeners', 'values_attempt', 'taken', 'reader', 'stalled', 'incarnation'))
attempt, taken = attempt or '0', taken or '0'
if ARGV[3] ~= '' and ARGV[3] ~= attempt then
    if ARGV[5] ~= '0' then return redis.error_reply('RESTARTED another attempt has begun') end
elseif ARGV[3] ~= '' and taken ~= ARGV[5] then
    if taken ~= ARGV[4] then return redis.error_reply('ELSEWHERE another reader takes the values') end
    taken = ARGV[5]
    redis.call('HSET', KEYS[1], 'taken', taken)
    redis.call('HINCRBY', KEYS[1], 'taken_bytes', ARGV[6])
    redis.call('XTRIM', KEYS[2], 'MINID', attempt .. '-' .. string.format('%.0f', taken + 1))
    if stalled then
        redis.call('HDEL', KEYS[1], 'stalled')
        redis.call('PUBLISH', CONTROL .. incarnation, NEWS .. ARGV[1])
    end
end
if state and reader ~= ARGV[2] then redis.call('HSET', KEYS[1], 'reader', ARGV[2]) end
local entries = redis.call('XRANGE', KEYS[2], attempt .. '-' .. string.format('%.0f', taken + 1), '+', 'COUNT', ARGV[7])
if #entries == 0 then listen(KEYS[1], state, listeners, ARGV[2]) end
return {state or '', attempt, taken, entries}
