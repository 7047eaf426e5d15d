-- Says that a process is alive, and counts those that said so lately.
--
-- A script, because it is the server's clock that says what "lately" is: hosts' clocks may differ.
--
-- KEYS[1]  a sorted set: process to the milliseconds since the epoch of its last word
-- ARGV[1]  the process
-- ARGV[2]  milliseconds after which one that said nothing counts as gone
-- RETURNS  how many are alive, this one included

local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('(%.0f', now - tonumber(ARGV[2])))
redis.call('PEXPIRE', KEYS[1], 2 * tonumber(ARGV[2]))
return redis.call('ZCARD', KEYS[1])
