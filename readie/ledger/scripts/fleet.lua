-- Look at every live worker.
-- KEYS 1 capacity, 2 workers
-- ARGV 1 prefix of the workers' entries, 2 prefix of their lists of avoided checkpoints
-- Returns {capacity counter, worker, worker, ...}, each worker as
-- {name, announcement, number of calls, bytes reserved, ready sandboxes as JSON, avoided checkpoints, sessions}; idle sessions that end when a call needs their
-- room are left out.
-- Atomic, so that capacity freed after this look has changed the counter.
local fleet = {redis.call('GET', KEYS[1]) or '0'}
local now = redis.call('TIME')[1]
for _, name in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
    local announcement, ready, evicts = unpack(redis.call('HMGET', ARGV[1] .. name, 'announcement', 'ready', 'evicts'))
    if announcement then
        local idle, idle_memory = {}, 0
        if evicts == '1' then idle = redis.call('ZRANGE', WORKER_IDLE_SESSIONS .. name, 0, -1) end
        for _, session in ipairs(idle) do
            idle_memory = idle_memory + (redis.call('HGET', WORKER_MEMORY .. name, SESSION_MEMORY .. session) or 0)
        end
        fleet[#fleet + 1] = {
            name,
            announcement,
            redis.call('ZCARD', WORKER_CALLS .. name),
            string.format('%d', (redis.call('HGET', WORKER_MEMORY .. name, TOTAL) or 0) - idle_memory),
            ready or '{}',
            redis.call('ZRANGEBYSCORE', ARGV[2] .. name, now, '+inf'),
            redis.call('SCARD', WORKER_SESSIONS .. name) - #idle,
        }
    end
end
return fleet
