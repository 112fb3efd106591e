#!lua flags=allow-oom
-- Takes a lane off the broker that every subscriber has passed and nobody has published to since.
--
-- KEYS   stream and newest string of the lane; stream and newest string of the other lane of its partition; where they are in the same
--        slot (not on Cluster): the index, and the hash of registered subscribers
-- ARGV   what to do: "look" changes nothing, "delete" deletes if it may; partition key; the newest sequence that all have passed;
--        the store that produces; subscribers. Registered subscribers of other stores are added to them, for only their groups tell of them
-- Result "ok", then "1" if the partition is live still, for its other lane is there, else "0"; or
--        "busy", then the subscribers that have not passed, as far as their groups show
-- Cost   O(groups); the server frees what is deleted in the background
-- A subscriber without a group has not read: it holds the lane. What is pending was not acknowledged, also where its entry is gone.

local stream, name, through = KEYS[1], KEYS[2], tonumber(ARGV[3])
local function sequenceOf(id) return tonumber(string.match(id, '^(%d+)%-')) end

local function newest()
  if redis.call('XLEN', stream) == 0 then return 0 end
  local kept = string.match(redis.call('GET', name) or '', '^(%d+) ')
  return tonumber(kept or sequenceOf(redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1][1]))
end

-- Subscribers that have not passed.
local function behind(last)
  local groups, held, seen = {}, {}, {}
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local of = {}
    for i = 1, #group, 2 do of[group[i]] = group[i + 1] end
    groups[of.name] = of
  end
  local function look(subscriber)
    local group = groups[subscriber]
    if seen[subscriber] then return end
    seen[subscriber] = true
    if not group or group.pending > 0 or sequenceOf(group['last-delivered-id']) < last then held[#held + 1] = subscriber end
  end
  for i = 5, #ARGV do look(ARGV[i]) end
  if KEYS[6] then
    local registered = redis.call('HGETALL', KEYS[6])
    for i = 1, #registered, 2 do
      if string.match(registered[i + 1], '^%S*') ~= ARGV[4] then look(registered[i]) end
    end
  end
  return held
end

if redis.call('EXISTS', stream) == 1 then
  local last = newest()
  local held = behind(last)
  if last > through or #held > 0 then return {'busy', unpack(held)} end
end

local other = redis.call('EXISTS', KEYS[3])
if ARGV[1] == 'delete' then
  redis.call('UNLINK', stream, name)
  if other == 0 then
    redis.call('UNLINK', KEYS[4])
    if KEYS[5] then redis.call('SREM', KEYS[5], ARGV[2]) end
  end
end
return {'ok', tostring(other)}
