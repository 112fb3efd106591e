#!lua flags=allow-oom
-- Adds keys to busy sets, and wakes whoever listens.
--
-- KEYS   busy sets of subscribers
-- ARGV   of each, in that order: its wake channel, 1 = wake for all keys, 0 = for those that were not in the set, number of keys, keys
-- Result number of keys that were not in their set
-- Cost   O(keys)
-- A message is keys with line feeds between; no key contains one.

local at, added = 0, 0
local function take()
  at = at + 1
  return ARGV[at]
end

for _, busy in ipairs(KEYS) do
  local channel, all, n = take(), take() == '1', tonumber(take())
  for from = 1, n, 1000 do
    local keys, wake = {}, {}
    for i = 1, math.min(1000, n - from + 1) do keys[i] = take() end
    for i, known in ipairs(redis.call('SMISMEMBER', busy, unpack(keys))) do
      if known == 0 then added = added + 1 end
      if known == 0 or all then wake[#wake + 1] = keys[i] end
    end
    redis.call('SADD', busy, unpack(keys))
    if #wake > 0 then redis.call('PUBLISH', channel, table.concat(wake, '\n')) end
  end
end
return added
