-- Adds to the counts of sets of imports, which fade from day to day.
-- KEYS: 1 sorted set of the counts, 2 the day on which they were last lowered
-- ARGV: 1 share of a count that a day leaves, 2 count below which a set is forgotten, 3 most sets that are kept,
--       4 seconds after which unused counts go, then pairs: set, how often
-- Returns nothing.
-- Atomic: several routers count, and a day may lower the counts only once.
local day = math.floor(tonumber(redis.call('TIME')[1]) / 86400)
local lowered = tonumber(redis.call('GET', KEYS[2]))
if lowered and day > lowered then
  redis.call('ZUNIONSTORE', KEYS[1], 1, KEYS[1], 'WEIGHTS', tonumber(ARGV[1]) ^ (day - lowered))
  redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', '(' .. ARGV[2])
end
for i = 5, #ARGV, 2 do
  redis.call('ZINCRBY', KEYS[1], ARGV[i + 1], ARGV[i])
end
-- Trimmed with some room to grow: what is new has time to become frequent before it is among the least.
local most = tonumber(ARGV[3])
local excess = redis.call('ZCARD', KEYS[1]) - most
if excess > most / 4 then
  redis.call('ZREMRANGEBYRANK', KEYS[1], 0, excess - 1)
end
redis.call('SET', KEYS[2], math.max(day, lowered or day), 'EX', ARGV[4])
redis.call('EXPIRE', KEYS[1], ARGV[4])
