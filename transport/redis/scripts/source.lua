#!lua flags=allow-oom
-- Reads a stream that another program writes, and what tells whether something of it is gone. It changes nothing.
--
-- KEYS   the stream
-- ARGV   id above which to read ("" = all), most entries, most bytes of what they have
-- Result id given out last ("" = there is no stream), entries there are, entries there ever were (-1: before 7.0, which does not count), 1 if there may be more, entries
-- Errors WRONGTYPE
-- Cost   O(entries), and the first and the last entry of the stream
local stream, most, room = KEYS[1], tonumber(ARGV[2]), tonumber(ARGV[3])
if redis.call('EXISTS', stream) == 0 then
  return {'', 0, 0, 0, {}}
end
local last, length, added = '', 0, -1
local info = redis.call('XINFO', 'STREAM', stream)
for i = 1, #info, 2 do
  if info[i] == 'last-generated-id' then last = info[i + 1] end
  if info[i] == 'length' then length = info[i + 1] end
  if info[i] == 'entries-added' then added = info[i + 1] end
end
local from, entries = ARGV[1] == '' and '-' or '(' .. ARGV[1], {}
while true do
  local step = math.min(16, most - #entries) -- so that no more is read than there is room for, by much
  if step <= 0 or room <= 0 then
    return {last, length, added, 1, entries}
  end
  local got = redis.call('XRANGE', stream, from, '+', 'COUNT', step)
  for _, entry in ipairs(got) do
    if room <= 0 then
      return {last, length, added, 1, entries}
    end
    entries[#entries + 1] = entry
    from = '(' .. entry[1]
    for i = 1, #entry[2] do room = room - #entry[2][i] end
  end
  if #got < step then
    return {last, length, added, 0, entries}
  end
end
