#!lua flags=allow-oom
-- Puts members into a set, or takes them out. A server whose memory is full refuses that as a command of its own.
--
-- KEYS   the set
-- ARGV   "1" or "0", members
-- Result number of those for which that was news
-- Cost   O(members)

local command, news = ARGV[1] == '1' and 'SADD' or 'SREM', 0
for from = 2, #ARGV, 1000 do
  news = news + redis.call(command, KEYS[1], unpack(ARGV, from, math.min(from + 999, #ARGV)))
end
return news
