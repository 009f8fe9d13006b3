-- Cut the leases of workers that are longer than any they asked for: Redis' clock was set back.
-- KEYS 1 workers
-- ARGV 1 prefix of the workers' entries
-- Returns 1.
-- Atomic, so that no entry is given a new lease that has just ended.
for _, name in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
    local lease = tonumber(redis.call('HGET', ARGV[1] .. name, 'lease'))
    if lease and redis.call('TTL', ARGV[1] .. name) > lease then redis.call('EXPIRE', ARGV[1] .. name, lease) end
end
return 1
