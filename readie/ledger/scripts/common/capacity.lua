-- Stands before every script: what several of them do to what calls share. Names of keys come from readie/protocol/keys.py.

-- Has a router look at the waiting calls, if there are any and none is about to look.
local function wake()
    if redis.call('EXISTS', WAITING) == 1 and redis.call('LINDEX', SUBMIT_QUEUE, -1) ~= WAKE then
        redis.call('RPUSH', SUBMIT_QUEUE, WAKE)
    end
end

-- Says that something may let a waiting call run.
local function capacity_changed()
    redis.call('INCR', CAPACITY)
    wake()
end

-- Gives back the memory that a call or a session has reserved of a worker, if it has.
local function free_memory(worker, field)
    local reserved = WORKER_MEMORY .. worker
    local memory = redis.call('HGET', reserved, field)
    if memory then
        redis.call('HDEL', reserved, field)
        if redis.call('HINCRBY', reserved, TOTAL, -memory) <= 0 then redis.call('DEL', reserved) end
    end
end

-- Gives back the slot and the memory that a call holds of a worker, if it does.
local function free(worker, id)
    if redis.call('ZREM', WORKER_CALLS .. worker, id) == 0 then
        redis.call('ZREM', WORKER_SESSION_CALLS .. worker, id)
        return
    end
    free_memory(worker, id)
    capacity_changed()
end

-- Takes a call out of the waiting ones; its record says of which group it is, false when it does not wait.
local function leave_waiting(id, group)
    if not group then return end
    redis.call('ZREM', WAITING, id)
    redis.call('ZREM', WAITING_GROUP .. group, id)
    if redis.call('EXISTS', WAITING_GROUP .. group) == 0 then redis.call('HDEL', WAITING_GROUPS, group) end
    leave_turns(id)
end
