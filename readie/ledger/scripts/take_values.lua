-- A reader says what it has taken of a call's values, and gets the next ones.
-- KEYS 1 record, 2 values
-- ARGV 1 id, 2 reader's client, 3 attempt whose values it reads ('' for one that begins where the last reader stopped),
--      4 values it had taken when it last said so, 5 values it has taken now, 6 bytes of all of them, 7 most values to return
-- Returns {state ('' when the record is gone), attempt, values taken, bytes of them, entries}, or an error: RESTARTED when another
-- attempt has begun after values were taken, ELSEWHERE when somebody else reads them. Sent again, it takes nothing twice.
-- Atomic, so that a value is either returned here or told later, and a worker that waits for the reader is told.
local state, listeners, attempt, taken, taken_bytes, reader, stalled, incarnation = unpack(redis.call(
    'HMGET', KEYS[1], 'state', 'listeners', 'values_attempt', 'taken', 'taken_bytes', 'reader', 'stalled', 'incarnation'))
attempt, taken, taken_bytes = attempt or '0', taken or '0', taken_bytes or '0'
if ARGV[3] ~= '' and ARGV[3] ~= attempt then
    if ARGV[5] ~= '0' then return redis.error_reply('RESTARTED another attempt has begun') end
elseif ARGV[3] ~= '' and taken ~= ARGV[5] then
    -- A Redis that was killed may have forgotten the reader's last steps.
    local forgotten = reader == ARGV[2] and tonumber(taken) < tonumber(ARGV[4])
    if taken ~= ARGV[4] and not forgotten then return redis.error_reply('ELSEWHERE another reader takes the values') end
    taken, taken_bytes = ARGV[5], ARGV[6]
    redis.call('HSET', KEYS[1], 'taken', taken, 'taken_bytes', taken_bytes)
    redis.call('XTRIM', KEYS[2], 'MINID', attempt .. '-' .. string.format('%.0f', taken + 1))
    if stalled then
        redis.call('HDEL', KEYS[1], 'stalled')
        redis.call('PUBLISH', READER_NEWS .. incarnation .. ':' .. ARGV[1], NEWS .. ARGV[1])
    end
end
if state and reader ~= ARGV[2] then redis.call('HSET', KEYS[1], 'reader', ARGV[2]) end
local entries = redis.call('XRANGE', KEYS[2], attempt .. '-' .. string.format('%.0f', taken + 1), '+', 'COUNT', ARGV[7])
if #entries == 0 then listen(KEYS[1], state, listeners, ARGV[2]) end
return {state or '', attempt, taken, taken_bytes, entries}
