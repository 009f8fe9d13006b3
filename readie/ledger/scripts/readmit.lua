-- Send the messages of queued calls again that are nowhere: lost on their way, by a consumer that was not a router, say.
-- KEYS 1 pending, 2 waiting, 3 submit queue
-- ARGV 1 place in the order to begin at, 2 seconds a message may be under way, 3 most calls to look at, 4 prefix of records
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
        local state, message, awaits_turn = unpack(redis.call('HMGET', ARGV[4] .. id, 'state', 'message', 'awaits_turn'))
        if not state then
            redis.call('ZREM', KEYS[1], id)
        elseif state == 'queued' and message and not awaits_turn then
            redis.call('LPUSH', KEYS[3], message)
            answer[#answer + 1] = id
        end
    end
end
return answer
