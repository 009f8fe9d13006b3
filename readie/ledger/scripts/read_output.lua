-- Read what a call has printed.
-- KEYS 1 record
-- ARGV 1 bytes that are known already, 2 most entries, 3 client to be told when there is more ('' for none), 4 id
-- Returns {state ('' when the record is gone), output's length until now, entries}.
-- Atomic, so that what is printed is either returned here or told later.
local state, listeners, total = unpack(redis.call('HMGET', KEYS[1], 'state', 'listeners', 'output_bytes'))
local entries = redis.call('XRANGE', OUTPUT .. ARGV[4], string.format('%.0f', ARGV[1] + 1), '+', 'COUNT', ARGV[2])
if #entries == 0 and ARGV[3] ~= '' then listen(KEYS[1], state, listeners, ARGV[3]) end
return {state or '', total or '0', entries}
