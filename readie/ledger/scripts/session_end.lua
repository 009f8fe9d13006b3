-- End a session, and with it the calls that run or wait in it.
-- KEYS 1 session
-- ARGV 1 session's id, 2 final state, 3 why, 4 seconds to keep the record, 5 sandbox that it must have ('' any), 6 incarnation that its
--      worker must not have, and be known ('' any), 7 '1': only if it has been idle for its idle time, 8 '1': leave a record also where there is none, 9
--      call that ends by itself ('' none), 10 and 11 result of the others before and after the end time, with @call@ and
--      @submitted@ to be filled in, 12 seconds to keep it
-- Returns 1 when it has ended by that, else 0.
-- Atomic, so that no call comes between: it runs in the session, or is told that the session has ended.
local fields = redis.call('HMGET', KEYS[1], 'state', 'call', 'sandbox', 'worker', 'incarnation', 'last_used_at', 'idle_ttl_seconds')
local state, call, sandbox, worker, incarnation, used, idle_ttl = unpack(fields)
if not state then
    if ARGV[8] ~= '1' then return 0 end
elseif not live(state) or (ARGV[5] ~= '' and sandbox ~= ARGV[5]) or (ARGV[6] ~= '' and (not sandbox or incarnation == ARGV[6])) then
    return 0
end
local now = clock()
if ARGV[7] == '1' and (state ~= 'idle' or used + idle_ttl > tonumber(now)) then return 0 end
end_session(ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[9], {ARGV[10], ARGV[11], ARGV[12]})
return 1
