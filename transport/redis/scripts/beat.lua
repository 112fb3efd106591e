#!lua flags=allow-oom
-- Writes the entry of a member, and gives all that have not lapsed. Time is the server's, so that no two clocks are compared.
--
-- KEYS   the hash of members
-- ARGV   id, how long the entry lasts in ms, the entry
-- Result entries of all members that have not lapsed. Those that have are removed.
-- Cost   O(members)

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f %s', now + ARGV[2], ARGV[3]))
local all, live, last = redis.call('HGETALL', KEYS[1]), {}, 0
for i = 1, #all, 2 do
  local until_, entry = string.match(all[i + 1], '^(%d+) (.*)$')
  if until_ and tonumber(until_) > now then
    live[#live + 1] = entry
    last = math.max(last, tonumber(until_))
  else
    redis.call('HDEL', KEYS[1], all[i])
  end
end
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.max(1, last - now)))
return live
