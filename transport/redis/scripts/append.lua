#!lua
-- Appends to lanes by compare-and-append, and marks their keys as having work, also where there was nothing to append.
--
-- KEYS   in any order, counted from 1 in ARGV: of each lane its stream and, right behind it, its newest string; where they are in the
--        same slot (not on Cluster) indexes of categories and busy sets of subscribers.
-- ARGV   MaxAhead, the most entries that a stream keeps
--        number of lanes; of each lane:
--          place of its stream, place of its index (0 = not here), its partition key, 1 = begin here where there is nothing,
--          sequence of its first entry, number of entries; of each entry: number of values, then field, value, field, value ...
--        number of subscribers; of each: place of its busy set, its wake channel, number of keys, keys
-- Result of each lane two elements: "ok", "dup", "gap", "empty" or "error"; then "sequence event-id" of the newest entry, "" with
--        "empty", a message with "error". A lane that goes wrong fails no other.
-- Errors OOM: nothing was done. It is the one script that may not run at maxmemory, unless no lane brings entries: then it is loaded with
--        the flag.
-- Cost   O(entries + trimmed + keys). No body is read but when the newest string was lost, or when the whole run is there already: then the last one's.
-- Order  entries, busy sets, index, wakes: what a crash between two servers leaves undone is done when it is asked again.
-- Sequences are exact below 2^53.

local KEYS, ARGV, call, tell, unpack, find = KEYS, ARGV, redis.call, redis.pcall, unpack, string.find
local at = 0
local function take()
  at = at + 1
  return ARGV[at]
end
local function number() return tonumber(take()) end
local function text(sequence) return string.format('%.0f', sequence) end

-- The newest entry as the stream has it: sequence, event id. It is written down beside the stream, so that nobody reads a body again.
local function look(stream, name)
  local entry = call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
  local sequence = string.match(entry[1], '^(%d+)%-0$')
  if not sequence then
    error({err = 'entry ' .. entry[1] .. ' of ' .. stream .. ' is not of the form sequence-0: it was written by hand'})
  end
  local event = ''
  for i = 1, #entry[2], 2 do
    if entry[2][i] == 'id' then event = entry[2][i + 1] end
  end
  call('SET', name, sequence .. ' ' .. event)
  return tonumber(sequence), event
end

-- The newest entry of a lane, nil when it has none. A stream without the string is looked at; a string without stream says nothing.
local function newest(stream, name, length)
  if length == 0 then return nil end
  local _, _, sequence, event = find(call('GET', name) or '', '^(%d+) (.*)$')
  if sequence then return tonumber(sequence), event end
  return look(stream, name)
end

-- The event id of the entry whose fields and values are these of ARGV.
local function eventOf(from, upto)
  for i = from, upto, 2 do
    if ARGV[i] == 'id' then return ARGV[i + 1] end
  end
  return ''
end

local ahead = number()

-- Appends entries from the skip-th on; tells the newest afterwards, and what stopped it.
local function add(stream, name, first, entries, skip, length)
  local newest, fault
  for i = skip + 1, #entries do
    local sequence, from, upto = text(first + i - 1), entries[i], entries[i] + tonumber(ARGV[entries[i] - 1]) - 1
    local added = tell('XADD', stream, sequence .. '-0', unpack(ARGV, from, upto))
    if type(added) == 'table' and added.err then
      fault = added.err
      break
    end
    newest = sequence .. ' ' .. eventOf(from, upto)
    length = length + 1
  end
  if newest then
    call('SET', name, newest)
    if length > ahead then call('XTRIM', stream, 'MAXLEN', '=', ahead) end
  end
  return newest, fault
end

-- What was removed by hand cannot be put back where it was: a stream takes no id at or below the highest that it ever had. So it is one that lost everything.
local function lost(stream, name)
  call('UNLINK', stream, name)
  return 'empty', ''
end

-- entries are the places of their first fields in ARGV, behind the number of these.
local function append(stream, name, start, first, entries)
  local length = call('XLEN', stream)
  local last, event = newest(stream, name, length)
  local skip = 0
  if not last then
    if #entries == 0 or not start then return 'empty', '' end
    call('UNLINK', stream) -- without entries it still knows the highest id it ever had, and refuses lower ones
  elseif #entries == 0 then
    return 'ok', text(last) .. ' ' .. event
  elseif last + 1 < first then
    return 'gap', text(last) .. ' ' .. event
  elseif last >= first then
    skip = last - first + 1
    local from = entries[skip]
    if not from or eventOf(from, from + tonumber(ARGV[from - 1]) - 1) ~= event then return 'dup', text(last) .. ' ' .. event end
    if skip == #entries then
      if #call('XRANGE', stream, text(last) .. '-0', text(last) .. '-0') == 0 then return lost(stream, name) end
      return 'ok', text(last) .. ' ' .. event
    end
  end
  local added, fault = add(stream, name, first, entries, skip, length)
  if fault and not added and find(fault, 'equal or smaller', 1, true) then -- the string was behind its stream
    last, event = look(stream, name)
    if last < first + skip then return lost(stream, name) end
    return 'dup', text(last) .. ' ' .. event
  end
  if fault then return 'error', fault end
  return 'ok', added
end

local answers, indexed = {}, {}
for lane = 1, number() do
  local stream, index, key, start, first, entries = number(), number(), take(), take() == '1', number(), {}
  for i = 1, number() do
    entries[i] = at + 2
    at = at + 1 + tonumber(ARGV[at + 1])
  end
  local done, outcome, told = pcall(append, KEYS[stream], KEYS[stream + 1], start, first, entries)
  if not done then
    outcome, told = 'error', type(outcome) == 'table' and outcome.err or tostring(outcome)
  end
  answers[2 * lane - 1], answers[2 * lane] = outcome, told
  if index > 0 and outcome ~= 'empty' and outcome ~= 'error' then
    local keys = indexed[index] or {}
    indexed[index] = keys
    keys[#keys + 1] = key
  end
end

local wakes = {}
for _ = 1, number() do
  local busy, channel, keys, quiet = KEYS[number()], take(), number(), {}
  local first, last = at + 1, at + keys
  at = last
  for from = first, last, 1000 do
    for i, known in ipairs(call('SMISMEMBER', busy, unpack(ARGV, from, math.min(from + 999, last)))) do
      if known == 0 then quiet[#quiet + 1] = ARGV[from + i - 1] end
    end
  end
  for from = 1, #quiet, 1000 do
    local upto = math.min(from + 999, #quiet)
    call('SADD', busy, unpack(quiet, from, upto))
    wakes[#wakes + 1] = {channel, table.concat(quiet, '\n', from, upto)}
  end
end

for index, keys in pairs(indexed) do
  for from = 1, #keys, 1000 do call('SADD', KEYS[index], unpack(keys, from, math.min(from + 999, #keys))) end
end
for _, wake in ipairs(wakes) do call('PUBLISH', wake[1], wake[2]) end
return answers
