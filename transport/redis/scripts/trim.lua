#!lua flags=allow-oom
-- Takes entries off the beginning of streams. The newest always stays, and so does what a subscriber that is named has not acknowledged.
--
-- KEYS   of each lane: its stream, its newest string
-- ARGV   of each lane: the sequence up to which entries go; number of subscribers that hold the stream by their group, for nobody else
--        knows how far they are; their names. One without a group has passed nothing.
-- Result of each lane: "" or a message
-- Cost   O(removed + groups) for each lane

local at = 0
local function take()
  at = at + 1
  return ARGV[at]
end
local function sequenceOf(id) return tonumber(string.match(id, '^(%d+)%-')) end

local function trim(stream, name, through, holders)
  local kept = string.match(redis.call('GET', name) or '', '^(%d+) ')
  if redis.call('XLEN', stream) == 0 then return '' end
  local keep = tonumber(kept or sequenceOf(redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1][1])) -- the newest stays
  if #holders > 0 then
    local groups = {}
    for _, group in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
      local of = {}
      for i = 1, #group, 2 do of[group[i]] = group[i + 1] end
      groups[of.name] = of
    end
    for _, holder in ipairs(holders) do
      local group = groups[holder]
      if not group then return '' end
      local passed = sequenceOf(group['last-delivered-id'])
      if group.pending > 0 then passed = sequenceOf(redis.call('XPENDING', stream, holder)[2]) - 1 end
      through = math.min(through, passed)
    end
  end
  redis.call('XTRIM', stream, 'MINID', '=', string.format('%.0f-0', math.min(through + 1, keep)))
  return ''
end

local answers = {}
for i = 1, #KEYS, 2 do
  local through, holders = tonumber(take()), {}
  for h = 1, tonumber(take()) do holders[h] = take() end
  local done, told = pcall(trim, KEYS[i], KEYS[i + 1], through, holders)
  if not done and type(told) == 'table' then told = told.err end
  answers[#answers + 1] = tostring(told)
end
return answers
