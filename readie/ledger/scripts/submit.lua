-- Accept a call: its record and the message that wakes a router, all or nothing. Its payload, if any, is stored before.
-- KEYS 1 record: Redis wants a client to have all rights to what is here, and of the rest it can add to some
-- ARGV 1 id, 2 message, 3 reply client, 4 seconds within which it must begin ('' for any time),
--      5 '1' when the client wants to hear of the first output or value, 6 the function's name, 7 the client's, both for people
-- Returns the submit time (Redis clock, seconds, as text). Sent again (the connection broke before the answer), it changes nothing.
-- Atomic, so that no message can refer to a record that is not there.
local before = redis.call('HGET', KEYS[1], 'submitted_at')
if before then return before end
local time = redis.call('TIME')
local now = string.format('%d.%06d', time[1], time[2])
redis.call('HSET', KEYS[1], 'state', 'queued', 'attempt', 0, 'reply', ARGV[3], 'submitted_at', now,
    'name', ARGV[6], 'client', ARGV[7])
redis.call('HSET', MESSAGE .. ARGV[1], 'submitted', ARGV[2])
if ARGV[5] == '1' then redis.call('HSET', KEYS[1], 'listeners', ARGV[3]) end
if ARGV[4] ~= '' then
    local expires = string.format('%.6f', now + ARGV[4])
    redis.call('HSET', KEYS[1], 'expires_at', expires)
    redis.call('ZADD', EXPIRIES, expires, ARGV[1])
end
redis.call('ZADD', PENDING, now, ARGV[1])
redis.call('LPUSH', SUBMIT_QUEUE, ARGV[2])
return now
