#!lua
-- Appends to lanes by compare-and-append, and marks their keys as having work, also where there was nothing to append.
--
-- KEYS   in any order, counted from 1 in ARGV: of each lane its stream and, right behind it, its newest string; where they are in the
--        same slot (not on Cluster) indexes of categories and busy sets of subscribers.
-- ARGV   MaxAhead, the most entries that a stream keeps
--        number of lanes; of each lane:
--          place of its stream, place of its index (0 = not here), its partition key, 1 = begin here where there is nothing,
--          sequence of its first entry, number of entries; of each entry: number of values, then field, value, field, value ...; or, with a
--          minus before the number, values alone: it has the fields and values of the last entry before it in the call that was said in
--          full, but for the values of so many of its last fields, which are these
--        number of subscribers; of each: place of its busy set, its wake channel, number of keys, keys; or 0, for the keys of all lanes
-- Result of each lane two elements: "ok", "dup", "gap", "empty" or "error"; then "sequence event-id" of the newest entry, "" with
--        "empty", a message with "error". A lane that goes wrong fails no other. A lane may come once.
-- Errors OOM: nothing was done. It is the one script that may not run at maxmemory, unless no lane brings entries: then it is loaded with
--        the flag.
-- Cost   O(entries + trimmed + keys). No body is read but when the newest string was lost, or when the whole run is there already: then the last one's. The
--        usual lane costs one command, that which appends: what a command costs inside a script is most of the time.
-- Order  entries, busy sets, index, wakes: what a crash between two servers leaves undone is done when it is asked again.
-- Sequences are exact below 2^53.

local KEYS, ARGV, call, tell, unpack, match, tonumber = KEYS, ARGV, redis.call, redis.pcall, unpack, string.match, tonumber
local ahead, count = tonumber(ARGV[1]), tonumber(ARGV[2])
local most = 1000 -- words of one command

-- Of each lane: its place in ARGV, its newest string and what that says, its key, and where the last entry in full before it begins.
local places, names, told, keys, before = {}, {}, {}, {}, {}
local at, full = 2, nil
for lane = 1, count do
  places[lane], names[lane], keys[lane], before[lane] = at, KEYS[ARGV[at + 1] + 1], ARGV[at + 3], full
  local entries = tonumber(ARGV[at + 6])
  at = at + 6
  for _ = 1, entries do
    local values = tonumber(ARGV[at + 1])
    if values > 0 then
      full = at + 2
    else
      values = -values
    end
    at = at + 1 + values
  end
end
for from = 1, count, most do
  for i, newest in ipairs(call('MGET', unpack(names, from, math.min(from + most - 1, count)))) do told[from + i - 1] = newest end
end

local function text(sequence)
  if sequence < 2147483648 then return string.format('%d', sequence) end -- which is faster, and as wide as a long
  return string.format('%.0f', sequence)
end

-- What is to be written down of the newest entries of lanes, beside their streams: names and values.
local notes = {}
local function note(name, newest)
  local n = #notes
  notes[n + 1], notes[n + 2] = name, newest
end

-- The newest entry as the stream has it: sequence, event id; nil when it has none. It is noted, so that nobody reads a body again.
local function look(stream, name)
  local entry = call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
  if not entry then return nil end
  local sequence = match(entry[1], '^(%d+)%-0$')
  if not sequence then
    error({err = 'entry ' .. entry[1] .. ' of ' .. stream .. ' is not of the form sequence-0: it was written by hand'})
  end
  local event = ''
  for i = 1, #entry[2], 2 do
    if entry[2][i] == 'id' then event = entry[2][i + 1] end
  end
  note(name, sequence .. ' ' .. event)
  return tonumber(sequence), event
end

-- An entry that is said by values alone, put together: of which one in full, how many of its fields are others, how many words, where the event id is.
local form, formed, differing, size, idAt = {}, nil, nil, 0, nil

-- The place of the event id among the words of an entry, if it has one.
local function idIn(words, first, last)
  for i = first, last, 2 do
    if words[i] == 'id' then return i + 1 end
  end
end

-- The entry that begins there in ARGV, behind the number of its values; in full is the last entry before it that was. It gives the words, which are good until the next call,
-- the first and the last of them, and the event id; then where the next entry begins, and which is the last in full before that.
local function entry(from, full)
  local values = tonumber(ARGV[from - 1])
  if values > 0 then
    local last = from + values - 1
    return ARGV, from, last, ARGV[idIn(ARGV, from, last)] or '', last + 2, from
  end
  values = -values
  if formed ~= full or differing ~= values then
    formed, differing, size = full, values, tonumber(ARGV[full - 1])
    for i = 1, size do form[i] = ARGV[full + i - 1] end
    idAt = idIn(form, 1, size)
  end
  local at = size - 2 * values
  for i = from, from + values - 1 do
    at = at + 2
    form[at] = ARGV[i]
  end
  return form, 1, size, form[idAt] or '', from + values + 1, full
end

-- Appends entries, the first of which has that sequence, in these digits, and begins there in ARGV, after that one in full. It tells the newest afterwards, and what stopped
-- it. Neither: there is no stream, and it is not to be made.
local function add(stream, name, sequence, digits, entries, from, full, make)
  local newest, event, fault
  for left = entries, 1, -1 do
    local added, words, first, last, id
    words, first, last, id, from, full = entry(from, full)
    if make then
      added, make = tell('XADD', stream, digits .. '-0', unpack(words, first, last)), false
    elseif left > 1 or sequence <= ahead then -- it has no more entries than the last one's sequence
      added = tell('XADD', stream, 'NOMKSTREAM', digits .. '-0', unpack(words, first, last))
    else
      added = tell('XADD', stream, 'NOMKSTREAM', 'MAXLEN', '=', ahead, digits .. '-0', unpack(words, first, last))
    end
    if not added then break end
    if type(added) == 'table' then
      fault = added.err
      break
    end
    newest, event = digits, id
    if left > 1 then
      sequence = sequence + 1
      digits = text(sequence)
    end
  end
  if not newest then return nil, fault end
  newest = newest .. ' ' .. event
  note(name, newest)
  return newest, fault
end

-- What was removed by hand cannot be put back where it was: a stream takes no id at or below the highest that it ever had. So it is one that lost everything.
local function lost(stream, name)
  call('UNLINK', stream, name)
  local n = #notes
  if notes[n - 1] == name then notes[n - 1], notes[n] = nil, nil end
  return 'empty', ''
end

-- from is the place of the first entry, full that of the last one in full before it.
local function append(stream, name, newest, start, first, entries, from, full)
  local last, event = match(newest or '', '^(%d+) (.*)$')
  last = tonumber(last)
  if call('XLEN', stream) == 0 then -- a string without stream says nothing
    if entries == 0 or not start then return 'empty', '' end
    call('UNLINK', stream) -- without entries it still knows the highest id it ever had, and refuses lower ones
    local added, fault = add(stream, name, first, text(first), entries, from, full, true)
    return fault and 'error' or 'ok', fault or added
  end
  if not last then last, event = look(stream, name) end
  newest = text(last) .. ' ' .. event
  if entries == 0 then return 'ok', newest end
  if last + 1 < first then return 'gap', newest end
  local there = last - first + 1 -- of the entries
  if there > entries then return 'dup', newest end
  for n = 1, there do
    local _, id
    _, _, _, id, from, full = entry(from, full)
    if n == there and id ~= event then return 'dup', newest end
  end
  if there == entries then
    if #call('XRANGE', stream, text(last) .. '-0', text(last) .. '-0') == 0 then return lost(stream, name) end
    return 'ok', newest
  end
  local added, fault = add(stream, name, last + 1, text(last + 1), entries - there, from, full)
  if fault and not added and string.find(fault, 'equal or smaller', 1, true) then -- the string was behind its stream
    local behind = last
    last, event = look(stream, name)
    if not last or last <= behind then return lost(stream, name) end
    return 'dup', text(last) .. ' ' .. event
  end
  return fault and 'error' or 'ok', fault or added
end

local answers, indexed, index, of = {}, {}, nil, nil
for lane = 1, count do
  local at = places[lane]
  local stream, name, newest, digits, entries = KEYS[tonumber(ARGV[at + 1])], names[lane], told[lane], ARGV[at + 5], tonumber(ARGV[at + 6])
  local first, outcome, now = tonumber(digits), nil, nil
  local last = newest and tonumber(match(newest, '^%d+'))
  if entries > 0 and last and last + 1 == first then -- as nearly always. Whether there is a stream is seen when the entry is added
    local added, fault = add(stream, name, first, digits, entries, at + 8, before[lane])
    if added then
      outcome, now = fault and 'error' or 'ok', fault or added
    end
  end
  if not outcome then
    local done
    done, outcome, now = pcall(append, stream, name, newest, ARGV[at + 4] == '1', first, entries, at + 8, before[lane])
    if not done then
      outcome, now = 'error', type(outcome) == 'table' and outcome.err or tostring(outcome)
    end
  end
  answers[2 * lane - 1], answers[2 * lane] = outcome, now
  if ARGV[at + 2] ~= '0' and outcome ~= 'empty' and outcome ~= 'error' then
    if ARGV[at + 2] ~= index then
      index = ARGV[at + 2]
      of = indexed[index] or {}
      indexed[index] = of
    end
    of[#of + 1] = keys[lane]
  end
end
for from = 1, #notes, most do call('MSET', unpack(notes, from, math.min(from + most - 1, #notes))) end

local function take()
  at = at + 1
  return ARGV[at]
end
local wakes = {}
for _ = 1, tonumber(take()) do
  local busy, channel, number, quiet = KEYS[tonumber(take())], take(), tonumber(take()), {}
  local all, first, last = ARGV, at + 1, at + number
  at = last
  if number == 0 then all, first, last = keys, 1, count end
  for from = first, last, most do
    for i, known in ipairs(call('SMISMEMBER', busy, unpack(all, from, math.min(from + most - 1, last)))) do
      if known == 0 then quiet[#quiet + 1] = all[from + i - 1] end
    end
  end
  for from = 1, #quiet, most do
    local upto = math.min(from + most - 1, #quiet)
    call('SADD', busy, unpack(quiet, from, upto))
    wakes[#wakes + 1] = {channel, table.concat(quiet, '\n', from, upto)}
  end
end

for place, of in pairs(indexed) do
  for from = 1, #of, most do call('SADD', KEYS[tonumber(place)], unpack(of, from, math.min(from + most - 1, #of))) end
end
for _, wake in ipairs(wakes) do call('PUBLISH', wake[1], wake[2]) end
return answers
