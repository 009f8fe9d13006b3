-- Send the messages of queued calls again that are nowhere: lost on their way, by a consumer that was not a router, say.
-- KEYS 1 pending, 2 waiting, 3 submit queue
-- ARGV 1 place in the order to begin at, 2 seconds a message may be under way, 3 most calls to look at
-- Returns {where to begin next time (0: from the start), id, ...} with the ids of the calls whose message was sent.
-- Atomic, so that a message is not sent again that has just been queued. One in a router's hand may be: the ledger settles
-- the second.
if redis.call('LLEN', KEYS[3]) > 0 then return {ARGV[1]} end
local before = redis.call('TIME')[1] - ARGV[2]
local entries = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. ARGV[1], before, 'WITHSCORES', 'LIMIT', 0, ARGV[3])
local answer = {#entries < 2 * ARGV[3] and '0' or entries[#entries]}
for n = 1, #entries, 2 do
    local id = entries[n]
    if not redis.call('ZSCORE', KEYS[2], id) and not redis.call('ZSCORE', DELAYED, id) then
        -- A client can have made anything of its own records: that must not hold up the calls of others.
        local record = redis.pcall('HMGET', CALL .. id, 'state', 'awaits_turn')
        local submitted = redis.pcall('HGET', MESSAGE .. id, 'submitted')
        if record.err and not string.find(record.err, 'WRONGTYPE') then return record end
        if record.err or not record[1] then
            redis.call('ZREM', KEYS[1], id)
            redis.call('DEL', MESSAGE .. id)
        elseif record[1] == 'queued' and type(submitted) == 'string' and not record[2] then
            redis.call('LPUSH', KEYS[3], submitted)
            answer[#answer + 1] = id
        end
    end
end
return answer
