#!lua flags=allow-oom
-- The fenced read: acknowledges for units that hold their lease, and gives them what comes next, in one step.
--
-- Each read sets the group to the caller's position and reads from there. So an entry that another consumer of the group left pending comes in its place, becomes
-- this consumer's as it is read, and comes again when asked again; what is gone from the stream is passed, for the caller to notice by the sequence. No group is made where there is no stream.
--
-- Primary lanes are read first, the others only when those have nothing. When no lane has anything, and everything to be acknowledged is, the key leaves the set of busy ones.
-- A lane whose newest string tells of something above the position, and whose stream has nothing there, has lost it: it counts as one that has something.
--
-- KEYS    for each unit: its lease, the set of busy keys (if B = 1), the streams of its lanes, the newest strings of those lanes that are marked with "+"
-- ARGV    1: B (1: the sets are in this slot, or 0), 2: how many bytes of data an answer may have over all units, 3: how many of one unit (each entry counts for 1 KiB more); then for each unit: holder
--         (owner:generation), group, key, most entries of a lane, T (1: remove consumers that own nothing, 2: only when there is nothing to read, 0: leave them), number of streams; then for each
--         stream: position to read from, first sequence to acknowledge (0: none; "*": whatever is pending up to the position, 128 at a time), what it is: "p" a primary lane, "b" a
--         backfill lane, "P" and "B" the same, not to be read: the caller knows that what comes next is not in it; "+" behind it: its newest string is among the keys
-- Result  for each unit: {'ok', 1 if there was nothing in any lane, else 0, 1 if there is more to acknowledge, else 0, entries of the first stream, of the second, ...},
--         and last, if groups were made or lanes have lost something, in which streams, by number, and in which ones that is;
--         {'fenced'}, {'later'} (not even looked at: the answer has its bytes already), {'error', text}
-- Errors  none of a single unit
-- Cost    O(number of units, streams and entries), whatever is pending
local KEYS, ARGV, call, tell = KEYS, ARGV, redis.call, redis.pcall
local apart, left, unit_limit = ARGV[1] == '0', tonumber(ARGV[2]), tonumber(ARGV[3])

-- acknowledge reports whether all of it is done.
local function acknowledge(group, stream, from, upto)
  if from == upto then
    call('XACK', stream, group, upto .. '-0')
    return true
  end
  local ids = {}
  if from ~= '*' then
    for n = tonumber(from), tonumber(upto) do
      ids[#ids + 1] = string.format('%.0f-0', n)
    end
  else
    local pending = tell('XPENDING', stream, group, '-', upto .. '-0', 128)
    if pending.err then -- no stream, or no group
      return true
    end
    for i, p in ipairs(pending) do
      ids[i] = p[1]
    end
  end
  if #ids > 0 then
    call('XACK', stream, group, unpack(ids))
  end
  return from ~= '*' or #ids < 128
end

-- read gives entries, how many bytes of data all have that the unit was given, and whether the group was made for it. An entry counts for 1 KiB more than it has, which is about the time that it takes.
local function read(group, holder, stream, above, most, bytes)
  local at, made = above .. '-0', false
  if tell('XGROUP', 'SETID', stream, group, at).err then
    if call('EXISTS', stream) == 0 then
      return {}, bytes
    end
    call('XGROUP', 'CREATE', stream, group, at)
    made = true
  end
  local got = call('XREADGROUP', 'GROUP', group, holder, 'COUNT', most, 'STREAMS', stream, '>')
  if not got then
    return {}, bytes, made
  end
  local entries = got[1][2]
  for i = 1, #entries do
    local fields = entries[i][2]
    bytes = bytes + #fields[#fields] + 1024
    if i > 1 and bytes > unit_limit then
      for rest = #entries, i, -1 do
        entries[rest] = nil
      end
      break
    end
  end
  return entries, bytes, made
end

-- lost reports whether the newest string tells of an entry above, which the stream would have.
local function lost(newest, above)
  local last = string.match(call('GET', newest) or '', '^(%d+) ')
  return last and tonumber(last) > tonumber(above)
end

local function tidy(group, holder, key, streams)
  for i = 1, streams do
    local consumers = tell('XINFO', 'CONSUMERS', KEYS[key + i], group)
    for _, c in ipairs(consumers.err and {} or consumers) do
      local fields = {}
      for f = 1, #c, 2 do
        fields[c[f]] = c[f + 1]
      end
      if fields.name ~= holder and fields.pending == 0 then
        call('XGROUP', 'DELCONSUMER', KEYS[key + i], group, fields.name)
      end
    end
  end
end

-- serve serves the unit whose arguments come after a, and whose streams are the keys after k.
local function serve(lease, busy, a, k)
  local holder, group, most, when, streams = ARGV[a + 1], ARGV[a + 2], ARGV[a + 4], ARGV[a + 5], tonumber(ARGV[a + 6])
  if call('GET', lease) ~= holder then
    return {'fenced'}
  end
  if left <= 0 then
    return {'later'}
  end
  local answer, more, found, bytes, made, new, gone, newest = {'ok', 0, 0}, false, false, 0, {}, false, {}, {}
  local named = k + streams
  local first = a + 7
  for i = 1, streams do
    local at = first + 3 * (i - 1)
    if ARGV[at + 1] ~= '0' and not acknowledge(group, KEYS[k + i], ARGV[at + 1], ARGV[at]) then
      more = true
      answer[3] = 1
    end
    answer[3 + i] = {}
    if string.byte(ARGV[at + 2], 2) then
      named = named + 1
      newest[i] = KEYS[named]
    end
  end
  if when == '1' then
    tidy(group, holder, k, streams)
  end
  for kind = 0, 1 do
    local before = found
    for i = 1, streams do
      local at = first + 3 * (i - 1)
      local what = string.sub(ARGV[at + 2], 1, 1)
      if what == (kind == 0 and 'p' or 'b') then
        if not before then
          answer[3 + i], bytes, new = read(group, holder, KEYS[k + i], ARGV[at], most, bytes)
          if new then
            made[#made + 1] = i
          end
          if #answer[3 + i] == 0 and newest[i] and lost(newest[i], ARGV[at]) then
            gone[#gone + 1] = i
            found = true
          end
          found = found or #answer[3 + i] > 0
        end
      elseif what == (kind == 0 and 'P' or 'B') then
        found = true
      end
    end
  end
  if #made > 0 or #gone > 0 then
    answer[4 + streams], answer[5 + streams] = made, gone
  end
  left = left - bytes
  if not found and not more then
    answer[2] = 1
    if busy then
      call('SREM', busy, ARGV[a + 3])
    end
    if when == '2' then
      tidy(group, holder, k, streams)
    end
  end
  return answer
end

local answers, a, k = {}, 3, 0
while a < #ARGV do
  local lease, busy = KEYS[k + 1], nil
  k = k + 1
  if not apart then
    busy = KEYS[k + 1]
    k = k + 1
  end
  local done, answer = pcall(serve, lease, busy, a, k)
  if not done then
    answer = {'error', type(answer) == 'table' and answer.err or tostring(answer)}
  end
  answers[#answers + 1] = answer
  local streams = tonumber(ARGV[a + 6])
  for i = 1, streams do
    k = k + #ARGV[a + 6 + 3 * i] -- a stream, and for "+" its newest string
  end
  a = a + 6 + 3 * streams
end
return answers
