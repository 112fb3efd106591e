#!lua flags=allow-oom
-- Compares fields of hashes with what is declared, and sets them if nothing contradicts.
--
-- KEYS   hashes
-- ARGV   "look" changes nothing, "set" sets what agrees with everything;
--        of each field: place of its hash in KEYS, field, value, "1" if the value counts whatever is there, "2" if
--        it must not be that value, which sets nothing.
--        "" = not known here, which agrees with everything, as it does there
-- Result of each field that has another value: its number, counted from 1, then that value. Nothing is set then.
-- Cost   O(fields)

local conflicts, writes = {}, {}
for i = 2, #ARGV, 4 do
  local hash, field, ours, counts = KEYS[tonumber(ARGV[i])], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3] == '1'
  local theirs = redis.call('HGET', hash, field)
  if ARGV[i + 3] == '2' then
    if theirs == ours and ours ~= '' then
      conflicts[#conflicts + 1] = (i + 2) / 4
      conflicts[#conflicts + 1] = theirs
    end
  elseif not theirs or ours ~= '' and (theirs == '' or counts) then
    writes[#writes + 1] = {hash, field, ours}
  elseif ours ~= '' and theirs ~= ours then
    conflicts[#conflicts + 1] = (i + 2) / 4
    conflicts[#conflicts + 1] = theirs
  end
end
if #conflicts == 0 and ARGV[1] == 'set' then
  for _, write in ipairs(writes) do redis.call('HSET', unpack(write)) end
end
return conflicts
