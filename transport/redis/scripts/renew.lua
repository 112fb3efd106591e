#!lua flags=allow-oom
-- Extends leases.
--
-- KEYS    the leases
-- ARGV    1: TTL in milliseconds; then, for each lease, its holder (owner:generation)
-- Result  for each lease: 1 extended, 0 not held by that holder
-- Errors  none of a single lease
-- Cost    O(number of leases)
local answers, holders = {}, redis.call('MGET', unpack(KEYS))
for i, lease in ipairs(KEYS) do
  if holders[i] == ARGV[i + 1] then
    answers[i] = redis.call('PEXPIRE', lease, ARGV[1])
  else
    answers[i] = 0
  end
end
return answers
