#!lua flags=allow-oom
-- Extends leases, and now and then how long their generations are kept: not each time, or a renewal would cost twice as much.
--
-- KEYS    the leases; then generation keys of some of them
-- ARGV    1: TTL in milliseconds, 2: how long, in milliseconds, those generations are kept, 3: number of leases; then, for each lease, its holder (owner:generation); then, for each
--         generation key, which of the leases it belongs to, from 1
-- Result  for each lease: 1 extended, 0 not held by that holder
-- Errors  none of a single lease
-- Cost    O(number of leases)
local leases = tonumber(ARGV[3])
local answers, holders = {}, redis.call('MGET', unpack(KEYS, 1, leases))
for i = 1, leases do
  if holders[i] == ARGV[i + 3] then
    answers[i] = redis.call('PEXPIRE', KEYS[i], ARGV[1])
  else
    answers[i] = 0
  end
end
for i = leases + 1, #KEYS do
  if answers[tonumber(ARGV[i + 3])] == 1 then
    redis.call('PEXPIRE', KEYS[i], ARGV[2])
  end
end
return answers
