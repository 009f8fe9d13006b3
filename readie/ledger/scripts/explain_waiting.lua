-- Bring up to date why the calls of some groups wait.
-- KEYS 1 groups
-- ARGV group, why, group, why, ...
-- Returns how many were brought up to date.
-- Atomic, so that a group whose last call leaves at this moment does not come back.
local count = 0
for n = 1, #ARGV, 2 do
    if redis.call('HEXISTS', KEYS[1], ARGV[n]) == 1 then
        redis.call('HSET', KEYS[1], ARGV[n], ARGV[n + 1])
        count = count + 1
    end
end
return count
