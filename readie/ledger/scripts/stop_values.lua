-- Say that nobody wants more values of a call that runs; its worker has the function stopped.
-- KEYS 1 record
-- ARGV 1 id
-- Returns the call's state, '' when the record is gone; nothing changes unless it runs.
-- Atomic, so that the worker is told that runs it.
local state, incarnation = unpack(redis.call('HMGET', KEYS[1], 'state', 'incarnation'))
if state == 'running' then
    redis.call('HSET', KEYS[1], 'stop', '1')
    redis.call('PUBLISH', READER_NEWS .. incarnation .. ':' .. ARGV[1], NEWS .. ARGV[1])
end
return state or ''
