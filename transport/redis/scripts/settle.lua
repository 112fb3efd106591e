#!lua flags=allow-oom
-- Removes a field of a hash if it has that value still.
--
-- KEYS   the hash
-- ARGV   field, value
-- Result 1 if it was removed
-- Cost   O(1)

if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
return redis.call('HDEL', KEYS[1], ARGV[1])
