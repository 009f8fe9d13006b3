-- A worker appends what its call has printed.
-- KEYS 1 record, 2 output
-- ARGV 1 id, 2 attempt, 3 bytes that the attempt printed before, 4 what it printed, 5 bytes to keep, 6 seconds to keep them
-- Returns 1, or 0 when the attempt is not (or no longer) the one that runs: then nothing changes. Sent again, it changes nothing.
-- Atomic, so that nothing of a stale attempt appears, and whoever listens is told.
local state, attempt, listeners, total, printing, base =
    unpack(redis.call('HMGET', KEYS[1], 'state', 'attempt', 'listeners', 'output_bytes', 'output_attempt', 'output_base'))
if state ~= 'running' or attempt ~= ARGV[2] then return 0 end
total = total or '0'
if printing ~= attempt then
    base = total
    redis.call('HSET', KEYS[1], 'output_attempt', attempt, 'output_base', base)
end
local length = base + ARGV[3] + #ARGV[4]
if length <= tonumber(total) then return 1 end
local length_text = string.format('%.0f', length)
redis.call('XADD', KEYS[2], length_text .. '-' .. attempt, 'data', ARGV[4])
redis.call('HSET', KEYS[1], 'output_bytes', length_text)
local before = length - ARGV[5]
if before > 0 then redis.call('XTRIM', KEYS[2], 'MINID', string.format('%.0f', before + 1)) end
redis.call('EXPIRE', KEYS[2], ARGV[6])
tell_listeners(KEYS[1], ARGV[1], listeners)
return 1
