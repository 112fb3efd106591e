#!lua
-- Writes a run that a subscriber asked for. It takes the place of an earlier one.
--
-- KEYS   the missing run of the unit
-- ARGV   category, lane ("primary" or "backfill"), sequence after which the run begins, for how long it is kept in ms, "1" if the subscriber
--        asked where it begins, else "";
--        of each entry: its id, number of values, then field, value, field, value ...
--        No entries: they are nowhere any more, which the entry 0-1 alone says; or it begins there, with what is to come.
-- Result number of entries
-- Errors OOM: nothing was done
-- Cost   O(entries)

redis.call('UNLINK', KEYS[1])
redis.call('XADD', KEYS[1], '0-1', 'category', ARGV[1], 'lane', ARGV[2], 'after', ARGV[3], 'begin', ARGV[5])
local at, n = 6, 0
while at <= #ARGV do
  local id, values = ARGV[at], tonumber(ARGV[at + 1])
  redis.call('XADD', KEYS[1], id, unpack(ARGV, at + 2, at + 1 + values))
  at, n = at + 2 + values, n + 1
end
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return n
