-- A worker begins a call it was given.
-- KEYS 1 record
-- ARGV 1 attempt, 2 worker's incarnation
-- Returns {submitted_at, placed_at, now} as text, or false: the message is late, doubled or forged and means nothing.
-- Atomic, so that an attempt is begun once.
local state, attempt, incarnation, submitted, placed =
    unpack(redis.call('HMGET', KEYS[1], 'state', 'attempt', 'incarnation', 'submitted_at', 'placed_at'))
if state ~= 'placed' or attempt ~= ARGV[1] or incarnation ~= ARGV[2] then return false end
local time = redis.call('TIME')
local now = string.format('%d.%06d', time[1], time[2])
redis.call('HSET', KEYS[1], 'state', 'running', 'started_at', now)
return {submitted, placed, now}
