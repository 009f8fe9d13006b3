-- Ask to be told of a call's end.
-- KEYS 1 record
-- ARGV 1 reply client, 2 id
-- Returns {state, result or ''}; state '' when the record is gone.
-- Atomic, so that the end is either returned here or told later.
local state, reply = unpack(redis.call('HMGET', KEYS[1], 'state', 'reply'))
if state == 'queued' or state == 'placed' or state == 'running' then
    -- What may be in the result's place now is none of ours: Celery's own revoke writes there.
    if not string.find(' ' .. reply .. ' ', ' ' .. ARGV[1] .. ' ', 1, true) then
        redis.call('HSET', KEYS[1], 'reply', reply .. ' ' .. ARGV[1])
    end
    return {state, ''}
end
return {state or '', redis.call('GET', RESULT .. ARGV[2]) or ''}
