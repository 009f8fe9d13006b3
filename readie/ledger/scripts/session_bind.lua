-- A session's sandbox is up: from here on its calls go there, and it holds the memory that the call had reserved.
-- KEYS 1 session, 2 record of the call that opened it, 3 worker's reserved memory
-- ARGV 1 session's id, 2 the call's id, 3 its attempt, 4 worker, 5 its incarnation, 6 sandbox, 7 checkpoint it was restored from ('': cold),
--      8 checkpoint that was asked for, 9 flavor, 10 Python, 11 memory the call asked for ('': what the worker gives by itself),
--      12 '1': the sandbox has a GPU
-- Returns 1, or 0 when the session has ended meanwhile or is another call's to open: then the sandbox is of no use.
-- Atomic, so that a session has one sandbox.
local status, call, bound = unpack(redis.call('HMGET', KEYS[1], 'state', 'call', 'sandbox'))
local state, attempt = unpack(redis.call('HMGET', KEYS[2], 'state', 'attempt'))
if status ~= 'opening' or call ~= ARGV[2] or bound or state ~= 'running' or attempt ~= ARGV[3] then return 0 end
local memory = redis.call('HGET', KEYS[3], ARGV[2])
redis.call('HSET', KEYS[1], 'state', 'busy', 'worker', ARGV[4], 'incarnation', ARGV[5], 'sandbox', ARGV[6], 'checkpoint_id', ARGV[7],
    'asked', ARGV[8], 'flavor', ARGV[9], 'python', ARGV[10], 'memory_bytes', ARGV[11] ~= '' and ARGV[11] or memory or '',
    'gpu', ARGV[12])
if memory then
    redis.call('HDEL', KEYS[3], ARGV[2])
    redis.call('HSET', KEYS[3], SESSION_MEMORY .. ARGV[1], memory)
end
return 1
