-- Decides requests one after the other: all checks of one, all or nothing, charged if all enforcing ones fit.
--
-- A script, because deciding and charging several counters must be one step: between a GET and a SET, or
-- between the first rule and the second, another request could pass. The same script looks and counts, so
-- that what is shown is what is enforced. Several requests travel together, because a call costs more than a
-- decision; each is decided as if it had come alone.
--
-- KEYS        the counter of each check, over all requests; behind it the one to use instead, for checks that
--             have one
-- ARGV[1]     now in microseconds since the epoch; "" for the server's own clock (tests give it)
-- ARGV[2...]  for each request "1" to charge or "0" to look only, and how many checks it has; then eight for
--             each of these: algorithm, "1" if shadow, capacity, cost, window in microseconds, for a token bucket
--             the tokens gained and the microseconds that takes, without common divisor, and "1" where a counter
--             that is not there yet is not begun, but another one used instead
-- RETURNS     now; for each request 1 if all its enforcing checks fit; and four for each of its checks: 1 if it
--             fits (before charging), units used, microseconds until the same cost fits (0: now, -1: never),
--             microseconds until more remains (0: nothing is used)
--
-- Numbers here are doubles, exact for integers up to 2^53; the rules are checked so that nothing passes
-- that. They are written with %.0f, because tostring keeps 14 digits only. `%` and `/` may round for large
-- numbers; math.fmod is exact, so `quotient` is.

-- Expired entries that one call may remove, so that no call holds the server for long.
local removable = 1000
local ALGORITHMS = {}
-- A string: a table that no pcall catches ends a Redis 7.0.
local BROKEN = 'broken state'

local now = tonumber(ARGV[1])
if not now then
  local clock = redis.call('TIME')
  now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
end

local function written(number)
  return string.format('%.0f', number)
end

-- The integer quotient, rounded down, of non-negative integers.
local function quotient(a, b)
  return (a - math.fmod(a, b)) / b
end

local function quotient_up(a, b)
  local rest = math.fmod(a, b)
  return (a - rest) / b + (rest > 0 and 1 or 0)
end

-- A reply, or the error BROKEN when the key holds another type; what else is wrong is the caller's to know.
local function read(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err then
    error(string.find(reply.err, 'WRONGTYPE', 1, true) and BROKEN or reply.err, 0)
  end
  return reply
end

-- The integers of a state such as "17:3:4", the first of which times `scale` must be exact too.
local function numbers(key, pattern, scale)
  local text = read('GET', key)
  if not text then
    return nil
  end
  local a, b, c = string.match(text, pattern)
  a, b, c = tonumber(a), tonumber(b), tonumber(c or 0)
  if not a or math.max(a, b, c) > 2 ^ 53 or (a + 2) * scale > 2 ^ 53 then
    error(BROKEN, 0)
  end
  return a, b, c
end

-- Milliseconds for which the state still says something, and a little more, never more than twice that.
local function expiry(c)
  local needed = math.ceil((c.algorithm.matters_until(c) - c.now) / 1000)
  return written(math.max(1, needed + math.min(needed, 1000)))
end

-- Each algorithm has `read` (the state as of now), `used`, `wait` (microseconds from now until no more than
-- so many units, fewer than are used, will be), `charge` and `matters_until` (the moment from which the state
-- says nothing).
--@algorithms

-- What is used, and how long until more remains.
local function measure(c)
  c.used = c.algorithm.used(c)
  c.reset = c.used > 0 and c.algorithm.wait(c, math.min(c.used, c.capacity) - 1) or 0
end

local function answer(c)
  c.algorithm.read(c)
  c.used = c.algorithm.used(c)
  c.fits = c.cost <= c.capacity - c.used
  c.retry = 0
  if c.cost > c.capacity then
    c.retry = -1
  elseif not c.fits then
    c.retry = c.algorithm.wait(c, c.capacity - c.cost)
  end
  if not c.fits then
    measure(c) -- here, where broken state is noticed
  end
end

-- A counter of a wrong type or with broken state is deleted and begun anew; no other one is touched.
local function look(c)
  local ok, problem = pcall(answer, c)
  if ok then
    return
  end
  if problem ~= BROKEN then
    error(problem, 0)
  end
  redis.call('UNLINK', c.key)
  c.now = now
  answer(c)
end

-- A counter that is not written now may have lost its expiry, or need a longer one since its limit was
-- lowered. One whose clock is ahead (the server's was, and has been set right) is left to expire: asked all
-- the time, it would else be kept until the server's clock has come that far.
local function heal(c)
  local left = redis.call('PTTL', c.key)
  local too_short = left >= 0 and c.now == now and c.algorithm.matters_until(c) - now > left * 1000
  if left == -1 or too_short then
    redis.call('PEXPIRE', c.key, expiry(c))
  end
end

local function check(key, at)
  return {
    key = key,
    algorithm = ALGORITHMS[ARGV[at]],
    shadow = ARGV[at + 1] == '1',
    capacity = tonumber(ARGV[at + 2]),
    cost = tonumber(ARGV[at + 3]),
    window = tonumber(ARGV[at + 4]),
    gained = tonumber(ARGV[at + 5]),
    unit = tonumber(ARGV[at + 6]),
    now = now,
  }
end

local reply = { now }

-- One request: its checks have the keys after `key` and the arguments from `at` on. Returns the last key.
local function decide(charging, count, key, at)
  local checks, admitted = {}, true
  for i = 1, count do
    local first = at + (i - 1) * 8
    key = key + 1
    local name = KEYS[key]
    if ARGV[first + 7] == '1' then
      key = key + 1
      if redis.call('EXISTS', name) == 0 then
        name = KEYS[key]
      end
    end
    local c = check(name, first)
    checks[i] = c
    look(c)
    admitted = admitted and (c.fits or c.shadow)
  end
  reply[#reply + 1] = admitted and 1 or 0
  for _, c in ipairs(checks) do
    if admitted and charging and c.fits then
      c.algorithm.charge(c)
      measure(c)
    else
      if c.fits then
        measure(c)
      end
      heal(c)
    end
    local last = #reply
    reply[last + 1], reply[last + 2] = c.fits and 1 or 0, c.used
    reply[last + 3], reply[last + 4] = c.retry, c.reset
  end
  return key
end

local key, at = 0, 2
while key < #KEYS do
  local count = tonumber(ARGV[at + 1])
  key = decide(ARGV[at] == '1', count, key, at + 2)
  at = at + 2 + count * 8
end
return reply
