-- Put what a router has taken and not settled back on the submit queue, where it was.
-- KEYS 1 routers, 2 router's taken list, 3 submit queue
-- ARGV 1 router, 2 '1' when the router's lease must have ended, 3 longest a lease can last
-- Returns how many items went back, or false when the router lives.
-- Atomic, so that a router that renews its lease at this moment keeps its items or has lost them all.
if ARGV[2] == '1' then
    local lease = redis.call('ZSCORE', KEYS[1], ARGV[1])
    local left = (tonumber(lease) or 0) - redis.call('TIME')[1]
    if left > 0 and left <= tonumber(ARGV[3]) then return false end
end
local count = 0
while redis.call('LMOVE', KEYS[2], KEYS[3], 'LEFT', 'RIGHT') do count = count + 1 end
redis.call('ZREM', KEYS[1], ARGV[1])
return count
