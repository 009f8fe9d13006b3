-- Look at where a call is, for people.
-- KEYS 1 record
-- ARGV 1 id
-- Returns {state or '', what it waits for or ''}.
local state, group, again = unpack(redis.call('HMGET', KEYS[1], 'state', 'group', 'again'))
local waits_for = group and redis.call('HGET', WAITING_GROUPS, group)
if not waits_for and again and state == 'queued' then waits_for = redis.call('HGET', MESSAGE .. ARGV[1], 'again') end
return {state or '', waits_for or ''}
