-- Have routers avoid a checkpoint on a worker for a while.
-- KEYS 1 worker's avoided checkpoints
-- ARGV 1 checkpoint, 2 seconds
-- Returns 1.
local now = redis.call('TIME')[1]
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('EXPIRE', KEYS[1], ARGV[2])
return 1
