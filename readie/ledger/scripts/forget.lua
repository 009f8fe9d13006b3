-- Remove what is left of a worker that is gone and holds no call any more.
-- KEYS 1 worker, 2 workers, 3 worker's calls, 4 worker's queue, 5 worker's reserved memory
-- ARGV 1 name
-- Returns 1 when it was removed, 0 when it came back or holds calls.
-- Atomic, so that a worker that announces itself at this moment keeps its queue.
if redis.call('EXISTS', KEYS[1]) == 1 or redis.call('ZCARD', KEYS[3]) > 0 then return 0 end
if redis.call('EXISTS', WORKER_SESSION_CALLS .. ARGV[1]) > 0 then return 0 end
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('DEL', KEYS[4], KEYS[5], WORKER_SESSIONS .. ARGV[1], WORKER_IDLE_SESSIONS .. ARGV[1])
-- Calls that waited for it wait for something else now.
wake()
return 1
