#!lua flags=allow-oom,allow-cross-slot-keys
-- Grants leases to one owner, each at a generation above all that were granted before.
--
-- Nothing is granted by a server that may have forgotten leases: one without a birth key, with that of another server (its replication id), or born
-- less than a TTL ago, unless the caller knows that no lease of its units was granted before that birth. The server is asked for its id here, in the same step, so that no call is too late to find out.
--
-- A generation key holds `7 OWNER` while OWNER has the unit, or had it until the lease lapsed, and `7 released` once it was given back. It goes some time after either, by itself:
-- renewals move its end. What stands for a part has both in one field of a hash, `7 OWNER UNTIL` or `7 released`, so that all parts of a node are renewed in one go.
--
-- KEYS    for each unit: its lease, its generation key; for each part: the hash, twice
-- ARGV    1: birth key (in a Cluster: of the server's own, in another slot), 2: TTL in milliseconds, 3: owner, 4: births before which no lease of these units was granted, one in a
--         line, 5: how long, in milliseconds, a generation is kept from now on; then, for each unit, the floor, and of a part its field of the hash, else ''
-- Result  {'forgot', ms until something is granted, or -1: there is no valid birth key}, or
--         {'ok', answer for each unit}: {'granted', generation, 1 if the last owner was another one and did not release, else 0}, {'held', ms left,
--         who has it, '' if the lease does not say, generation of the lease}, {'error', text}
-- Errors  none of a single unit
-- Cost    O(number of units)
local birth = redis.call('GET', ARGV[1]) or ''
local born, since = string.match(birth, '^(%x+) (%d+)')
local id = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ttl, owner, keep = tonumber(ARGV[2]), ARGV[3], ARGV[5]
if not born or born ~= id or tonumber(since) > now then
  return {'forgot', -1}
end
if now < since + ttl and not string.find('\n' .. ARGV[4] .. '\n', '\n' .. birth .. '\n', 1, true) then
  return {'forgot', since + ttl - now}
end

local function above(...)
  local highest = 0
  for _, generation in ipairs({...}) do
    highest = math.max(highest, tonumber(generation))
  end
  return string.format('%.0f', highest + 1)
end

local function granted(generation, by)
  return {'granted', generation, (by and by ~= 'released' and by ~= owner) and 1 or 0}
end

local function take(lease, counter, floor)
  local holder = redis.call('GET', lease)
  local has, at = string.match(holder or '', '^(.*):(%d+)$')
  if holder and has ~= owner then
    return {'held', redis.call('PTTL', lease), has or '', at or '0'}
  end
  local last, by = string.match(redis.call('GET', counter) or '', '^(%d+) (.+)$')
  local generation = above(last or 0, at or 0, floor)
  redis.call('PEXPIRE', counter, ttl) -- a write that needs no memory: servers before 7.0, which know no flags, let the next ones pass then
  redis.call('SET', lease, owner .. ':' .. generation, 'PX', ttl)
  redis.call('SET', counter, generation .. ' ' .. owner, 'PX', keep)
  return granted(generation, by)
end

local function takePart(hash, field, floor)
  local last, by, till = string.match(redis.call('HGET', hash, field) or '', '^(%d+) (%S+) ?(%d*)$')
  if by and by ~= owner and (tonumber(till) or 0) > now then
    return {'held', tonumber(till) - now, by, last}
  end
  local generation = above(last or 0, floor)
  redis.call('PEXPIRE', hash, keep) -- first, as above
  redis.call('HSET', hash, field, string.format('%s %s %.0f', generation, owner, now + ttl))
  redis.call('PEXPIRE', hash, keep)
  return granted(generation, by)
end

local answers = {'ok'}
for unit = 1, #KEYS / 2 do
  local floor, field = ARGV[4 + 2 * unit], ARGV[5 + 2 * unit]
  local done, answer
  if field == '' then
    done, answer = pcall(take, KEYS[2 * unit - 1], KEYS[2 * unit], floor)
  else
    done, answer = pcall(takePart, KEYS[2 * unit], field, floor)
  end
  if not done then
    answer = {'error', type(answer) == 'table' and answer.err or tostring(answer)}
  end
  answers[unit + 1] = answer
end
return answers
