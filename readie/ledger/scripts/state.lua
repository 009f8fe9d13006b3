-- Look at where a call is, for people.
-- KEYS 1 record, 2 groups of waiting calls
-- Returns {state or '', what it waits for or ''}.
local state, group, again = unpack(redis.call('HMGET', KEYS[1], 'state', 'group', 'again'))
if state ~= 'queued' then again = '' end
return {state or '', group and redis.call('HGET', KEYS[2], group) or again or ''}
