-- Send the messages of the calls whose time to run again has come.
-- KEYS 1 delayed, 2 submit queue
-- ARGV 1 most calls
-- Returns the seconds until the next one's time as text, '' when there is none.
-- Atomic, so that a call that a router releases is on the submit queue.
local time = redis.call('TIME')
local now = time[1] + time[2] / 1e6
for _, id in ipairs(redis.call('ZRANGE', KEYS[1], '-inf', now, 'BYSCORE', 'LIMIT', 0, ARGV[1])) do
    redis.call('ZREM', KEYS[1], id)
    local state = redis.pcall('HGET', CALL .. id, 'state')
    local submitted = redis.pcall('HGET', MESSAGE .. id, 'submitted')
    if state == 'queued' and type(submitted) == 'string' then redis.call('LPUSH', KEYS[2], submitted) end
end
local first = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
return first[2] and string.format('%.6f', math.max(0, first[2] - now)) or ''
