-- Makes one change to what the API keeps, if what is stored is what was expected; says who did it; tells all.
--
-- A script, because comparing and setting must be one step (another replica may be changing the same), and
-- because a change that is made must be in the version, in the audit list and announced, or not made at all.
--
-- KEYS[1]  the hash of all that the API keeps: fields and the version
-- KEYS[2]  the audit list, newest first
-- ARGV[1]  the channel on which changes are announced
-- ARGV[2]  the audit entry
-- ARGV[3]  how many audit entries are kept
-- ARGV[4...]  for each field that changes: "replace", field, expected, new ("" stands for absent in both), or
--             "increment", field, "", ""
-- RETURNS  the new version; 0, with nothing changed, if one of the fields was not as expected
local function stored(field)
  return redis.call('HGET', KEYS[1], field) or ''
end

for i = 4, #ARGV, 4 do
  if ARGV[i] == 'replace' and stored(ARGV[i + 1]) ~= ARGV[i + 2] then
    return 0
  end
end

for i = 4, #ARGV, 4 do
  local how, field, new = ARGV[i], ARGV[i + 1], ARGV[i + 3]
  if how == 'increment' then
    redis.call('HINCRBY', KEYS[1], field, 1)
  elseif new == '' then
    redis.call('HDEL', KEYS[1], field)
  else
    redis.call('HSET', KEYS[1], field, new)
  end
end

-- It begins with the time: a store that has lost its data must not come to a version that a replica knows.
if stored('version') == '' then
  local clock = redis.call('TIME')
  redis.call('HSET', KEYS[1], 'version', clock[1] .. string.format('%06d', clock[2]))
end
local version = redis.call('HINCRBY', KEYS[1], 'version', 1)
redis.call('LPUSH', KEYS[2], ARGV[2])
redis.call('LTRIM', KEYS[2], 0, tonumber(ARGV[3]) - 1)
redis.call('PUBLISH', ARGV[1], version)
return version
