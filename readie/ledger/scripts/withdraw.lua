-- A worker goes: nothing is placed on it any more.
-- KEYS 1 worker, 2 workers
-- ARGV 1 name
-- Returns 1. Recovery removes the rest, so the name stays among the workers.
-- Atomic, so that no router sees one without the other.
redis.call('DEL', KEYS[1])
redis.call('ZADD', KEYS[2], 0, ARGV[1])
return 1
