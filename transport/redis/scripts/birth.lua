#!lua flags=allow-oom
-- Tells since when this server remembers, and begins anew where it may have forgotten: there is no birth, or another one's (a server that
-- was restarted, a replica that was promoted), or one that lies ahead of the clock. A server that gets its first replica takes another id as
-- well, which cannot be told from these: it costs one TTL without new leases.
--
-- KEYS   the birth of this server
-- ARGV   a text that nobody else gives, without spaces
-- Result the birth: "replication-id since-ms text"; then how old it is, in ms
-- Cost   O(1), and what INFO costs

local id = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local kept = redis.call('GET', KEYS[1]) or ''
local of, since = string.match(kept, '^(%x+) (%d+) ')
if of ~= id or tonumber(since) > now then
  since = now
  kept = string.format('%s %.0f %s', id, now, ARGV[1])
  redis.call('SET', KEYS[1], kept)
end
return {kept, now - tonumber(since)}
