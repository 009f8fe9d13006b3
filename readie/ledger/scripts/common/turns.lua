-- Stands before every script: fair turns of the clients whose calls wait (start-time fair queueing).
-- Each waiting call has a turn; calls of one client have one turn after the other, and a client that comes begins with the turn
-- that has come. So clients take turns, however many calls each has. Calls wait in the order of their turns, each priority apart.

local PRIORITIES = 1e10

-- Returns the turn of a call that begins to wait; again: it was placed before, and need not queue a second time.
local function next_turn(client, priority, group, again)
    local base = -priority * PRIORITIES
    local now = tonumber(redis.call('HGET', TURNS, priority)) or 0
    -- Where other workers are busy than where that turn has come, it goes on from the first that waits for them.
    local first = redis.call('ZRANGEBYSCORE', WAITING_GROUP .. group, base, base + PRIORITIES - 1, 'WITHSCORES', 'LIMIT', 0, 1)
    if first[2] then now = math.min(now, first[2] - base) end
    if again then return now end
    local own = priority .. ' ' .. client
    local turn = math.max(now, tonumber(redis.call('HGET', TURNS, own)) or 0)
    redis.call('HSET', TURNS, own, string.format('%.0f', turn + 1))
    return turn
end

-- Says that the turn of a waiting call has come.
local function turn_has_come(id)
    local order = tonumber(redis.call('ZSCORE', WAITING, id))
    if not order then return end
    local priority = -math.floor(order / PRIORITIES)
    local turn = order + priority * PRIORITIES
    if turn > (tonumber(redis.call('HGET', TURNS, priority)) or 0) then
        redis.call('HSET', TURNS, priority, string.format('%.0f', turn))
    end
end

-- Forgets a waiting call of a client, and the client's turns with the last of them.
local function leave_turns(id)
    local client = redis.call('HGET', WAITING_OF, id)
    if not client then return end
    redis.call('HDEL', WAITING_OF, id)
    if redis.call('HINCRBY', WAITING_CLIENTS, client, -1) <= 0 then
        redis.call('HDEL', WAITING_CLIENTS, client)
        for priority = 0, 9 do redis.call('HDEL', TURNS, priority .. ' ' .. client) end
    end
    if redis.call('EXISTS', WAITING) == 0 then redis.call('DEL', TURNS) end
end
