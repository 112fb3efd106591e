#!lua flags=allow-oom
-- Notes that a key waits for a person, or does not any more.
--
-- KEYS   the set of halted keys
-- ARGV   "1" or "0", key
-- Result 1 if that was news
-- Cost   O(1)

if ARGV[1] == '1' then return redis.call('SADD', KEYS[1], ARGV[2]) end
return redis.call('SREM', KEYS[1], ARGV[2])
