-- Take a call that was placed but not begun back from its worker.
-- KEYS 1 record
-- ARGV 1 id, 2 incarnation the call was placed on, 3 worker
-- Returns 'requeued', or the call's state when it is past being given back ('' when there is no record).
-- Atomic, so that a worker that begins the call at this moment either has it or has lost it.
local state, incarnation, worker, session =
    unpack(redis.call('HMGET', KEYS[1], 'state', 'incarnation', 'worker', 'session'))
local requeued = state == 'placed' and incarnation == ARGV[2] and worker == ARGV[3]
-- An entry of a call that is elsewhere, or nowhere, would hold a slot for ever.
local held = (state == 'placed' or state == 'running') and worker == ARGV[3]
if requeued or not held then free(ARGV[3], ARGV[1]) end
if requeued then
    leave_worker(ARGV[1], session, ARGV[3])
    redis.call('HSET', KEYS[1], 'state', 'queued')
    redis.call('RPUSH', SUBMIT_QUEUE, redis.call('HGET', MESSAGE .. ARGV[1], 'submitted'))
    return 'requeued'
end
return state or ''
