#!lua flags=allow-oom
-- Compares fields of hashes with what is declared, and sets them if nothing contradicts.
--
-- KEYS   hashes
-- ARGV   "look" changes nothing, "set" sets what agrees with everything; for how many ms a claim counts; "1" = whoever declares goes on as it does
--        if it is refused, and claims what it produces;
--        of each field: place of its hash in KEYS, field, value, "1" if the value counts whatever is there, "2" if
--        it must not be that value, which sets nothing, "3" if it may be claimed.
--        "" = not known here, which agrees with everything, as it does there
-- Result of each field that has another value: its number, counted from 1, then that value, or "claimed " and what another one claims it to be. Nothing is set
--        then but claims: field:claim = value, ms since 1970.
-- Cost   O(fields)

local conflicts, writes, first = {}, {}, 4
local now = redis.call('TIME')
now = now[1] * 1000 + math.floor(now[2] / 1000)

local function conflict(i, theirs)
  conflicts[#conflicts + 1] = (i - first) / 4 + 1
  conflicts[#conflicts + 1] = theirs
end

for i = first, #ARGV, 4 do
  local hash, field, ours, counts = KEYS[tonumber(ARGV[i])], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3] == '1'
  local theirs = redis.call('HGET', hash, field)
  if ARGV[i + 3] == '2' then
    if theirs == ours and ours ~= '' then conflict(i, theirs) end
  elseif not theirs or ours ~= '' and (theirs == '' or counts) then
    writes[#writes + 1] = {hash, field, ours}
  elseif ours ~= '' and theirs ~= ours then
    conflict(i, theirs)
    if ARGV[i + 3] == '3' and ARGV[3] == '1' then redis.call('HSET', hash, field .. ':claim', ours .. ' ' .. string.format('%.0f', now)) end
  end
  if ARGV[i + 3] == '3' and (not theirs or theirs == '' or theirs == ours) then
    local claim, since = string.match(redis.call('HGET', hash, field .. ':claim') or '', '^(%S+) (%d+)$')
    if claim and claim ~= ours and now - since < tonumber(ARGV[2]) then conflict(i, 'claimed ' .. claim) end
  end
end
if #conflicts == 0 and ARGV[1] == 'set' then
  for _, write in ipairs(writes) do redis.call('HSET', unpack(write)) end
end
return conflicts
