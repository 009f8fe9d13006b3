-- A worker begins a call it was given.
-- KEYS 1 record
-- ARGV 1 id, 2 attempt, 3 worker's incarnation, 4 token: a claim that is sent again (its answer was lost) has the same
-- Returns {submitted_at, placed_at, now, how often it has begun} as text, or false: the call has expired, or the message is
-- late, doubled or forged and means nothing.
-- Atomic, so that an attempt is begun once, and never after the call's expiry.
local state, attempt, incarnation, submitted, placed, expires, claimed, started, begun = unpack(redis.call('HMGET', KEYS[1],
    'state', 'attempt', 'incarnation', 'submitted_at', 'placed_at', 'expires_at', 'claimed', 'started_at', 'begun'))
if state == 'running' and attempt == ARGV[2] and claimed == ARGV[4] then return {submitted, placed, started, begun} end
if state ~= 'placed' or attempt ~= ARGV[2] or incarnation ~= ARGV[3] then
    redis.call('INCR', STALE)
    return false
end
local time = redis.call('TIME')
local now = string.format('%d.%06d', time[1], time[2])
if expires then
    if tonumber(now) > tonumber(expires) then return false end
    -- What was begun in time may be begun again at any time.
    redis.call('HDEL', KEYS[1], 'expires_at')
    redis.call('ZREM', EXPIRIES, ARGV[1])
end
redis.call('HSET', KEYS[1], 'state', 'running', 'started_at', now, 'claimed', ARGV[4])
return {submitted, placed, now, redis.call('HINCRBY', KEYS[1], 'begun', 1)}
