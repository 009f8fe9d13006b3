-- Answer a question.
-- KEYS 1 answer, 2 router's taken list
-- ARGV 1 answer, 2 seconds to keep it, 3 taken item
-- Returns 1. Atomic, so that a question is answered when it is settled.
redis.call('LPUSH', KEYS[1], ARGV[1])
redis.call('EXPIRE', KEYS[1], ARGV[2])
redis.call('LREM', KEYS[2], -1, ARGV[3])
return 1
