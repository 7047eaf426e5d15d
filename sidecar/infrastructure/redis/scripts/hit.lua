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
-- ARGV[2]     how many kinds of checks there are; then eight for each: algorithm, "1" if shadow, capacity,
--             cost, window in microseconds, for a token bucket the tokens gained and the microseconds that
--             takes, without common divisor, and "1" where a counter that is not there yet is not begun, but
--             another one used instead
-- ARGV[...]   for requests that are alike, as they follow one another: how many these are, "1" to charge or
--             "0" to look only, how many checks each of them has, and the kind of each of these, from 1 on
-- RETURNS     now; for each request 1 if all its enforcing checks fit, or 0; and three for each of its checks:
--             units used, microseconds until the same cost fits (0: it did, before it was charged; -1: never),
--             and until more remains (0: nothing is used)
--
-- Numbers here are doubles, exact for integers up to 2^53; the rules are checked so that nothing passes
-- that. tostring keeps 14 digits only; %d is the fastest that keeps all, where integers of C have 64 bits. `%`
-- and `/` may round for large numbers; math.fmod is exact, so `quotient` is.
--
-- What is the same for all checks of a kind is worked out once, numbers for commands are kept as text, and
-- tables are used again: garbage and writing numbers cost more than most commands do.

local call, try = redis.call, redis.pcall
local match, format = string.match, string.format
local fmod, ceil, min, max = math.fmod, math.ceil, math.min, math.max

-- Expired entries that one call may remove, so that no call holds the server for long.
local removable = 1000
local ALGORITHMS = {}
-- A string: a table that no pcall catches ends a Redis 7.0.
local BROKEN = 'broken state'
local LARGEST = 2 ^ 53

local now = tonumber(ARGV[1])
if not now then
  local clock = call('TIME')
  now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
end

local INTEGER = format('%d', LARGEST) == '9007199254740992' and '%d' or '%.0f'
local function written(number)
  return format(INTEGER, number)
end
local now_written = written(now)

-- The integer quotient, rounded down, of non-negative integers.
local function quotient(a, b)
  return (a - fmod(a, b)) / b
end

local function quotient_up(a, b)
  local rest = fmod(a, b)
  return (a - rest) / b + (rest > 0 and 1 or 0)
end

-- What `try` replied, or the error BROKEN when the key holds another type; what else is wrong is the caller's
-- to know.
local function checked(reply)
  if type(reply) == 'table' and reply.err then
    error(string.find(reply.err, 'WRONGTYPE', 1, true) and BROKEN or reply.err, 0)
  end
  return reply
end

-- The integers of a state such as "17:3:4", the first of which times `scale` must be exact too.
local function numbers(key, pattern, scale)
  local text = checked(try('GET', key))
  if not text then
    return nil
  end
  local a, b, c = match(text, pattern)
  a, b, c = tonumber(a), tonumber(b), c and tonumber(c) or 0
  if not a or a > LARGEST or b > LARGEST or c > LARGEST or (a + 2) * scale > LARGEST then
    error(BROKEN, 0)
  end
  return a, b, c
end

-- Milliseconds for a state that says something for so many microseconds: a little more, never more than twice
-- that.
local function expiry(us)
  local needed = ceil(us / 1000)
  return written(max(1, needed + min(needed, 1000)))
end

-- Each algorithm is asked once for a kind of checks, and answers with what is done for each of them: `read`
-- (sets the counter's state as of now, returns what is used), `wait` (microseconds from now until no more than
-- so many units, fewer than are used, will be), `charge` and `matters_until` (the moment from which the state
-- says nothing). A counter's own `now` is that of all, or later if it was charged later.
--@algorithms

-- How long until more remains.
local function reset(c, kind)
  return c.used > 0 and kind.wait(c, min(c.used, kind.capacity) - 1) or 0
end

local function answer(c, kind)
  c.now = now
  local used = kind.read(c)
  c.used, c.retry = used, 0
  if kind.cost > kind.capacity - used then -- all of it here, where broken state is noticed
    c.retry = kind.cost > kind.capacity and -1 or kind.wait(c, kind.capacity - kind.cost)
    c.reset = reset(c, kind)
  end
end

-- A counter of a wrong type or with broken state is deleted and begun anew; no other one is touched.
local function look(c, kind)
  local ok, problem = pcall(answer, c, kind)
  if ok then
    return
  end
  if problem ~= BROKEN then
    error(problem, 0)
  end
  call('UNLINK', c.key)
  answer(c, kind)
end

-- A counter that is not written now may have lost its expiry, or need a longer one since its limit was
-- lowered. One whose clock is ahead (the server's was, and has been set right) is left to expire: asked all
-- the time, it would else be kept until the server's clock has come that far.
local function heal(c, kind)
  local left = call('PTTL', c.key)
  if left == -2 then
    return
  end
  local needed = kind.matters_until(c) - c.now
  if left == -1 or c.now == now and needed > left * 1000 then
    call('PEXPIRE', c.key, expiry(needed))
  end
end

local function prepared(at)
  local kind = {
    shadow = ARGV[at + 1] == '1',
    capacity = tonumber(ARGV[at + 2]),
    cost = tonumber(ARGV[at + 3]),
    window = tonumber(ARGV[at + 4]),
    gained = tonumber(ARGV[at + 5]),
    unit = tonumber(ARGV[at + 6]),
    instead = ARGV[at + 7] == '1',
  }
  ALGORITHMS[ARGV[at]](kind)
  return kind
end

local reply, replied, key = { now }, 1, 0
-- The counters of one request; the next one's take their places.
local counters = {}

-- The key of the next check.
local function next_key(kind)
  key = key + 1
  local name = KEYS[key]
  if kind.instead then
    key = key + 1
    if call('EXISTS', name) == 0 then
      name = KEYS[key]
    end
  end
  return name
end

local function finish(c, kind, charging)
  local fits = c.retry == 0
  if fits and charging then
    kind.charge(c)
    c.used = c.used + kind.cost
  else
    heal(c, kind)
  end
  reply[replied + 1], reply[replied + 2], reply[replied + 3] = c.used, c.retry, fits and reset(c, kind) or c.reset
  replied = replied + 3
end

-- One request, whose checks have these kinds and the next keys.
local function decide(kinds, charging)
  local admitted = true
  for i = 1, #kinds do
    local c, kind = counters[i], kinds[i]
    if not c then
      c = {}
      counters[i] = c
    end
    c.key = next_key(kind)
    look(c, kind)
    admitted = admitted and (c.retry == 0 or kind.shadow)
  end
  replied = replied + 1
  reply[replied] = admitted and 1 or 0
  for i = 1, #kinds do
    finish(counters[i], kinds[i], admitted and charging)
  end
end

local kinds, at = {}, 3
for i = 1, tonumber(ARGV[2]) do
  kinds[i] = prepared(at)
  at = at + 8
end
while at <= #ARGV do
  local asked, checks = {}, tonumber(ARGV[at + 2])
  for i = 1, checks do
    asked[i] = kinds[tonumber(ARGV[at + 2 + i])]
  end
  for _ = 1, tonumber(ARGV[at]) do
    decide(asked, ARGV[at + 1] == '1')
  end
  at = at + 3 + checks
end
return reply
