#!lua flags=allow-oom
-- Tries commands, and tells which of them the account may not run.
--
-- KEYS   a key that is not there
-- ARGV   of each command: number of words, words; "KEY" stands for the key
-- Result first words of those that are refused for want of permission. Any other error means that the command may run.
-- Cost   O(commands). Nothing is left behind.

local refused, at = {}, 1
while at <= #ARGV do
  local words, n = {}, tonumber(ARGV[at])
  for i = 1, n do
    words[i] = ARGV[at + i]
    if words[i] == 'KEY' then words[i] = KEYS[1] end
  end
  at = at + n + 1
  local answer = redis.pcall(unpack(words))
  local fault = type(answer) == 'table' and answer.err or ''
  if string.find(fault, 'NOPERM', 1, true) or string.find(fault, 'The user executing the script', 1, true) then
    refused[#refused + 1] = words[1]
  end
end
redis.pcall('UNLINK', KEYS[1])
return refused
