-- Look at where a call is, for people.
-- KEYS 1 record
-- Returns {state or '', what it waits for or ''}.
local state, group, again = unpack(redis.call('HMGET', KEYS[1], 'state', 'group', 'again'))
if state ~= 'queued' then again = '' end
return {state or '', group and redis.call('HGET', WAITING_GROUPS, group) or again or ''}
