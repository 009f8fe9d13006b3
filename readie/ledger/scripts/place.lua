-- Give a queued call to a worker: reserves one of its slots and sends the message to its queue.
-- KEYS 1 record, 2 worker, 3 worker's calls, 4 worker's queue, 5 waiting, 6 router's taken list
-- ARGV 1 id, 2 attempt (this one's number), 3 worker's incarnation, 4 worker's name, 5 message, 6 taken item ('' when it came from waiting)
-- Returns {outcome, detail}: {'placed', time}, {'full'}, {'gone'} (worker's lease ended or it restarted), or
-- {'moved', attempt or -1} (the call is past this: the message is settled; with the record's attempt when it is still queued).
-- Atomic, so that a slot is given once and a call is on one worker only.
local state, attempt = unpack(redis.call('HMGET', KEYS[1], 'state', 'attempt'))
if state ~= 'queued' or tonumber(attempt) ~= tonumber(ARGV[2]) - 1 then
    if state == 'queued' then return {'moved', tonumber(attempt)} end
    if ARGV[6] ~= '' then redis.call('LREM', KEYS[6], -1, ARGV[6]) end
    redis.call('ZREM', KEYS[5], ARGV[1])
    return {'moved', -1}
end
local incarnation, slots = unpack(redis.call('HMGET', KEYS[2], 'incarnation', 'slots'))
if incarnation ~= ARGV[3] then return {'gone'} end
if redis.call('ZCARD', KEYS[3]) >= tonumber(slots) then return {'full'} end
local time = redis.call('TIME')
local now = string.format('%d.%06d', time[1], time[2])
redis.call('HSET', KEYS[1], 'state', 'placed', 'attempt', ARGV[2], 'worker', ARGV[4], 'incarnation', ARGV[3], 'placed_at', now)
redis.call('ZADD', KEYS[3], now, ARGV[1])
redis.call('HDEL', KEYS[1], 'waits_for')
redis.call('LPUSH', KEYS[4], ARGV[5])
redis.call('ZREM', KEYS[5], ARGV[1])
if ARGV[6] ~= '' then redis.call('LREM', KEYS[6], -1, ARGV[6]) end
return {'placed', now}
