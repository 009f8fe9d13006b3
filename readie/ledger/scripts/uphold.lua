-- A worker says that it runs an attempt. A Redis that lost its last moments may not know, or know of an earlier moment.
-- KEYS 1 record
-- ARGV 1 id, 2 attempt, 3 worker's incarnation, 4 worker
-- Returns 1: the call is (or is again) this worker's; 0: it has ended, is elsewhere, or is not known any more.
-- Atomic, so that a router that places the call at this moment either finds it running or has it placed elsewhere.
local state, attempt, incarnation, group, session =
    unpack(redis.call('HMGET', KEYS[1], 'state', 'attempt', 'incarnation', 'group', 'session'))
local here = attempt == ARGV[2] and incarnation == ARGV[3]
if state == 'running' and here then return 1 end
-- A session's record has forgotten as much as the call's: its sandbox is of no use any more.
local forgotten = state == 'queued' and not session and tonumber(attempt) < tonumber(ARGV[2])
if not forgotten and not (state == 'placed' and here) then return 0 end
local time = redis.call('TIME')
local now = string.format('%d.%06d', time[1], time[2])
redis.call('HSET', KEYS[1], 'state', 'running', 'attempt', ARGV[2], 'worker', ARGV[4], 'incarnation', ARGV[3], 'started_at', now)
redis.call('HSETNX', KEYS[1], 'placed_at', now)
redis.call('HDEL', KEYS[1], 'expires_at', 'group')
redis.call('ZREM', EXPIRIES, ARGV[1])
if forgotten then redis.call('ZADD', WORKER_CALLS .. ARGV[4], now, ARGV[1]) end
leave_waiting(ARGV[1], group)
return 1
