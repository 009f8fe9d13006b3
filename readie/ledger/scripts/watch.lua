-- Ask to be told of a call's end.
-- KEYS 1 record, 2 result
-- ARGV 1 reply client
-- Returns {state, result or ''}; state '' when the record is gone.
-- Atomic, so that the end is either returned here or told later.
local state, reply = unpack(redis.call('HMGET', KEYS[1], 'state', 'reply'))
local result = redis.call('GET', KEYS[2])
if not state or result then return {state or '', result or ''} end
if not string.find(' ' .. reply .. ' ', ' ' .. ARGV[1] .. ' ', 1, true) then
    redis.call('HSET', KEYS[1], 'reply', reply .. ' ' .. ARGV[1])
end
return {state, ''}
