-- Stands before every script, for those that let readers and writers of a call's streams know of each other.

-- Tells the clients that listen that something of a call is to be read. Each is told once and asks again.
local function tell_listeners(record, id, listeners)
    if not listeners then return end
    redis.call('HDEL', record, 'listeners')
    for client in string.gmatch(listeners, '%S+') do redis.call('PUBLISH', REPLIES .. client, NEWS .. id) end
end

-- Has a client told when there is something to be read, as long as the call can write anything.
local function listen(record, state, listeners, client)
    if state ~= 'queued' and state ~= 'placed' and state ~= 'running' then return end
    if not listeners then
        redis.call('HSET', record, 'listeners', client)
    elseif not string.find(' ' .. listeners .. ' ', ' ' .. client .. ' ', 1, true) then
        redis.call('HSET', record, 'listeners', listeners .. ' ' .. client)
    end
end

-- Notes whether the values that were not taken fill the window, so that the worker is told when some are.
local function note_stall(record, unread, unread_bytes, window, window_bytes)
    if unread >= tonumber(window) or unread_bytes >= tonumber(window_bytes) then
        redis.call('HSET', record, 'stalled', '1')
    end
end
