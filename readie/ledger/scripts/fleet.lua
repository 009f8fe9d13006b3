-- Look at every live worker.
-- KEYS 1 capacity, 2 workers
-- ARGV 1 prefix of the workers' entries, 2 prefix of the workers' calls
-- Returns {capacity counter, name, announcement, number of calls, name, ...}.
-- Atomic, so that capacity freed after this look has changed the counter.
local fleet = {redis.call('GET', KEYS[1]) or '0'}
for _, name in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
    local announcement = redis.call('HGET', ARGV[1] .. name, 'announcement')
    if announcement then
        fleet[#fleet + 1] = name
        fleet[#fleet + 1] = announcement
        fleet[#fleet + 1] = redis.call('ZCARD', ARGV[2] .. name)
    end
end
return fleet
