#!lua flags=allow-oom
-- Gives leases back, and marks their generations as released. With idle only where nothing is unread; the key leaves the set of busy ones in the same step then. Of
-- a unit without streams nobody knows what is unread: it is idle if its key is not busy.
-- A consumer that owns nothing goes. A release that was carried out already is carried out.
--
-- What stands for a part has neither streams nor a set: it goes.
--
-- KEYS    for each unit: its lease, its generation key, the set of busy keys (if the unit has B = 1), the streams of its lanes; for each part: the hash, twice
-- ARGV    1: how long, in milliseconds, the generation is kept; then for each unit: holder (owner:generation), generation, group, key, idle (1 or 0; 2: it is known to be
--         busy, and only the fence is to be asked), B (1: the set is in this slot, or 0), of a part its field of the hash, else '', number of streams, and for each stream the sequence
--         up to which it was read and acknowledged
-- Result  for each unit: {'ok'}, {'fenced'}, {'busy'}, {'error', text}
-- Errors  none of a single unit
-- Cost    O(number of units and streams, log of the length of a stream)
local argument, key = 1, 0

local function next_arguments(n)
  local from = argument + 1
  argument = argument + n
  return unpack(ARGV, from, argument)
end

local function next_key()
  key = key + 1
  return KEYS[key]
end

local function forget(stream, group, consumer)
  local owned = redis.pcall('XPENDING', stream, group, '-', '+', 1, consumer)
  if not owned.err and #owned == 0 then
    redis.pcall('XGROUP', 'DELCONSUMER', stream, group, consumer)
  end
end

local function give(u)
  if redis.call('GET', u.lease) ~= u.holder then
    if redis.call('EXISTS', u.lease) == 0 and redis.call('GET', u.counter) == u.generation .. ' released' then
      return {'ok'}
    end
    return {'fenced'}
  end
  if u.idle == '2' then
    return {'busy'}
  end
  if u.idle == '1' then
    if #u.streams == 0 and u.busy and redis.call('SISMEMBER', u.busy, u.key) == 1 then
      return {'busy'}
    end
    for _, s in ipairs(u.streams) do
      if #redis.call('XRANGE', s.name, '(' .. s.at .. '-0', '+', 'COUNT', 1) > 0 then
        return {'busy'}
      end
    end
  end
  for _, s in ipairs(u.streams) do
    forget(s.name, u.group, u.holder)
  end
  if u.idle == '1' and u.busy then
    redis.call('SREM', u.busy, u.key)
  end
  redis.call('DEL', u.lease)
  redis.call('SET', u.counter, u.generation .. ' released', 'PX', ARGV[1])
  return {'ok'}
end

local function givePart(u)
  local time = redis.call('TIME')
  local last, by, till = string.match(redis.call('HGET', u.counter, u.field) or '', '^(%d+) (%S+) ?(%d*)$')
  if last == u.generation and by == 'released' then
    return {'ok'}
  end
  if not last or by .. ':' .. last ~= u.holder or tonumber(till) <= time[1] * 1000 + math.floor(time[2] / 1000) then
    return {'fenced'}
  end
  redis.call('HSET', u.counter, u.field, last .. ' released')
  return {'ok'}
end

local answers = {}
while argument < #ARGV do
  local u = {lease = next_key(), counter = next_key(), streams = {}}
  local has_busy, streams
  u.holder, u.generation, u.group, u.key, u.idle, has_busy, u.field, streams = next_arguments(8)
  if has_busy == '1' then
    u.busy = next_key()
  end
  for i = 1, tonumber(streams) do
    u.streams[i] = {name = next_key(), at = next_arguments(1)}
  end
  local done, answer = pcall(u.field == '' and give or givePart, u)
  if not done then
    answer = {'error', type(answer) == 'table' and answer.err or tostring(answer)}
  end
  answers[#answers + 1] = answer
end
return answers
