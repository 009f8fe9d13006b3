-- Look at every live worker.
-- KEYS 1 capacity, 2 workers
-- ARGV 1 prefix of the workers' entries, 2 prefix of their lists of avoided checkpoints
-- Returns {capacity counter, worker, worker, ...}, each worker as
-- {name, announcement, number of calls, bytes reserved, ready sandboxes as JSON, avoided checkpoints}.
-- Atomic, so that capacity freed after this look has changed the counter.
local fleet = {redis.call('GET', KEYS[1]) or '0'}
local now = redis.call('TIME')[1]
for _, name in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
    local announcement, ready = unpack(redis.call('HMGET', ARGV[1] .. name, 'announcement', 'ready'))
    if announcement then
        fleet[#fleet + 1] = {
            name,
            announcement,
            redis.call('ZCARD', WORKER_CALLS .. name),
            redis.call('HGET', WORKER_MEMORY .. name, TOTAL) or '0',
            ready or '{}',
            redis.call('ZRANGEBYSCORE', ARGV[2] .. name, now, '+inf'),
        }
    end
end
return fleet
