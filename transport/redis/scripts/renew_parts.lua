#!lua flags=allow-oom
-- Extends the leases of parts: of all that a node holds in one go, for it does so every few seconds, whether there is work or not.
--
-- KEYS    the hash of parts, in which each has a field: `7 OWNER UNTIL`, its generation, who has it, and until when, or `7 released`
-- ARGV    1: TTL in milliseconds, 2: how long, in milliseconds, the hash is kept from now on; then, for each part, its field, generation and owner
-- Result  for each part: 1 extended, 0 not held by that owner at that generation
-- Cost    O(number of parts), five commands
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local fields, holders = {}, {}
for i = 3, #ARGV, 3 do
  fields[#fields + 1], holders[#holders + 1] = ARGV[i], ARGV[i + 1] .. ' ' .. ARGV[i + 2]
end
local answers, extended = {}, {}
for i, kept in ipairs(redis.call('HMGET', KEYS[1], unpack(fields))) do
  local holder, till = string.match(kept or '', '^(%d+ %S+) (%d+)$')
  answers[i] = 0
  if holder == holders[i] and tonumber(till) > now then
    answers[i] = 1
    extended[#extended + 1] = fields[i]
    extended[#extended + 1] = string.format('%s %.0f', holder, now + ARGV[1])
  end
end
if #extended > 0 then
  redis.call('PEXPIRE', KEYS[1], ARGV[2]) -- first, for it needs no memory: servers before 7.0, which know no flags, let the next one pass then
  redis.call('HSET', KEYS[1], unpack(extended))
end
return answers
