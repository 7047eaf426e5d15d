-- Puts one client in the place of another, if that is what is stored.
--
-- A script, because comparing and setting must be one step: another replica may be changing the same client.
--
-- KEYS[1]  the hash of all clients that the API made
-- ARGV[1]  the client's id
-- ARGV[2]  what is expected to be stored, "" for nothing
-- ARGV[3]  what to store, "" to delete
-- RETURNS  1 if it was stored, 0 if something else was there
local stored = redis.call('HGET', KEYS[1], ARGV[1]) or ''
if stored ~= ARGV[2] then
  return 0
end
if ARGV[3] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
end
return 1
