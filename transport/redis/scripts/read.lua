#!lua flags=allow-oom
-- The fenced read: acknowledges for units that hold their lease, and gives them what comes next, in one step.
--
-- Each read sets the group to the caller's position and reads from there. So an entry that another consumer of the group left pending comes in its place, becomes
-- this consumer's as it is read, and comes again when asked again; what is gone from the stream is passed, for the caller to notice by the sequence. No group is made where there is no stream.
--
-- Primary lanes are read first, the others only when those have nothing. When no lane has anything, and everything to be acknowledged is, the key leaves the set of busy ones.
--
-- KEYS    for each unit: its lease, the set of busy keys (if the unit has B = 1), the streams of its lanes
-- ARGV    1: how many bytes of data an answer may have over all units, 2: how many of one unit; then for each unit: holder (owner:generation), group, key, most
--         entries of a lane, B (1: the set is in this slot, or 0), T (1: remove consumers that own nothing, 2: only when there is nothing to read, 0: leave them), number of streams; then for each stream:
--         kind (0 primary, 1 backfill), position to read from, mode of the acknowledgement (0 none, 1 of each sequence from F to U, 2 of whatever is pending up to U, 128 at a time),
--         F, U, H (1: do not read; the caller knows that what comes next is not in it)
-- Result  for each unit: {'ok', 1 if there was nothing in any lane, else 0, 1 if there is more to acknowledge, else 0, entries of the first stream, of the second, ...},
--         {'fenced'}, {'later'} (not even looked at: the answer has its bytes already), {'error', text}
-- Errors  none of a single unit
-- Cost    O(number of units, streams and entries), whatever is pending
local argument, key = 2, 0
local left, unit_limit = tonumber(ARGV[1]), tonumber(ARGV[2])

local function next_arguments(n)
  local from = argument + 1
  argument = argument + n
  return unpack(ARGV, from, argument)
end

local function next_key()
  key = key + 1
  return KEYS[key]
end

-- acknowledge reports whether all of it is done.
local function acknowledge(u, s)
  if s.mode == '0' then
    return true
  end
  local ids = {}
  if s.mode == '1' then
    for n = tonumber(s.from), tonumber(s.to) do
      ids[#ids + 1] = string.format('%.0f-0', n)
    end
  else
    local pending = redis.pcall('XPENDING', s.name, u.group, '-', s.to .. '-0', 128)
    if pending.err then -- no stream, or no group
      return true
    end
    for i, p in ipairs(pending) do
      ids[i] = p[1]
    end
  end
  if #ids > 0 then
    redis.call('XACK', s.name, u.group, unpack(ids))
  end
  return s.mode == '1' or #ids < 128
end

local function read(u, s)
  local at = s.above .. '-0'
  local set = redis.pcall('XGROUP', 'SETID', s.name, u.group, at)
  if set.err then
    if redis.call('EXISTS', s.name) == 0 then
      return {}
    end
    redis.call('XGROUP', 'CREATE', s.name, u.group, at)
  end
  local got = redis.call('XREADGROUP', 'GROUP', u.group, u.holder, 'COUNT', u.most, 'STREAMS', s.name, '>')
  if not got then
    return {}
  end
  local entries = got[1][2]
  for i, entry in ipairs(entries) do
    local fields = entry[2]
    u.bytes = u.bytes + #(fields[#fields] or '')
    if i > 1 and u.bytes > unit_limit then
      for rest = #entries, i, -1 do
        entries[rest] = nil
      end
      break
    end
  end
  return entries
end

local function tidy(u)
  for _, s in ipairs(u.streams) do
    local consumers = redis.pcall('XINFO', 'CONSUMERS', s.name, u.group)
    for _, c in ipairs(consumers.err and {} or consumers) do
      local fields = {}
      for i = 1, #c, 2 do
        fields[c[i]] = c[i + 1]
      end
      if fields.name ~= u.holder and fields.pending == 0 then
        redis.call('XGROUP', 'DELCONSUMER', s.name, u.group, fields.name)
      end
    end
  end
end

local function serve(u)
  if redis.call('GET', u.lease) ~= u.holder then
    return {'fenced'}
  end
  if left <= 0 then
    return {'later'}
  end
  local more = false
  for _, s in ipairs(u.streams) do
    more = not acknowledge(u, s) or more
  end
  if u.tidy == '1' then
    tidy(u)
  end
  local answer, found = {'ok', 0, more and 1 or 0}, false
  for _, kind in ipairs({'0', '1'}) do
    local before = found
    for i, s in ipairs(u.streams) do
      if s.kind == kind then
        answer[3 + i] = {}
        if s.hold == '1' then
          found = true
        elseif not before then
          answer[3 + i] = read(u, s)
          found = found or #answer[3 + i] > 0
        end
      end
    end
  end
  left = left - u.bytes
  if not found and not more then
    answer[2] = 1
    if u.busy then
      redis.call('SREM', u.busy, u.key)
    end
    if u.tidy == '2' then
      tidy(u)
    end
  end
  return answer
end

local answers = {}
while argument < #ARGV do
  local u = {lease = next_key(), streams = {}, bytes = 0}
  local has_busy, streams
  u.holder, u.group, u.key, u.most, has_busy, u.tidy, streams = next_arguments(7)
  if has_busy == '1' then
    u.busy = next_key()
  end
  for i = 1, tonumber(streams) do
    local s = {name = next_key()}
    s.kind, s.above, s.mode, s.from, s.to, s.hold = next_arguments(6)
    u.streams[i] = s
  end
  local done, answer = pcall(serve, u)
  if not done then
    answer = {'error', type(answer) == 'table' and answer.err or tostring(answer)}
  end
  answers[#answers + 1] = answer
end
return answers
