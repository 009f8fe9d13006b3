-- Take a call that was placed but not begun back from its worker.
-- KEYS 1 record, 2 worker's calls, 3 submit queue, 4 capacity, 5 waiting
-- ARGV 1 id, 2 incarnation the call was placed on, 3 worker, 4 'wake' item
-- Returns 'requeued', or the call's state when it is past being given back ('' when there is no record).
-- Atomic, so that a worker that begins the call at this moment either has it or has lost it.
local state, incarnation, worker, message = unpack(redis.call('HMGET', KEYS[1], 'state', 'incarnation', 'worker', 'message'))
local requeued = state == 'placed' and incarnation == ARGV[2] and worker == ARGV[3]
-- An entry of a call that is elsewhere, or nowhere, would hold a slot for ever.
local held = (state == 'placed' or state == 'running') and worker == ARGV[3]
if (requeued or not held) and redis.call('ZREM', KEYS[2], ARGV[1]) == 1 then
    redis.call('INCR', KEYS[4])
    if redis.call('ZCARD', KEYS[5]) > 0 then redis.call('RPUSH', KEYS[3], ARGV[4]) end
end
if requeued then
    redis.call('HSET', KEYS[1], 'state', 'queued')
    redis.call('RPUSH', KEYS[3], message)
    return 'requeued'
end
return state or ''
