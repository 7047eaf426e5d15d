-- sliding_window_counter: "moment:count:before", the moment of the last charge, the count of its interval and
-- of the one before, of which as much is still in use as the window covers, in whole milliseconds, rounded up.
ALGORITHMS.sliding_window_counter = {
  read = function(c)
    local moment, count, before = numbers(c.key, '^(%d+):(%d+):(%d+)$', 0)
    c.now = math.max(c.now, moment or 0)
    c.window_ms = c.window / 1000
    c.index, c.count, c.before = quotient(c.now, c.window), 0, 0
    local passed = moment and c.index - quotient(moment, c.window)
    if passed == 0 then
      c.count, c.before = count, before
    elseif passed == 1 then
      c.before = count
    end
  end,

  used = function(c)
    local elapsed_ms = quotient(c.now - c.index * c.window, 1000)
    return c.count + quotient_up(c.before * (c.window_ms - elapsed_ms), c.window_ms)
  end,

  wait = function(c, units)
    local start, weighed, most = c.index * c.window, c.before, units - c.count
    if most < 0 then -- only once this interval is the one before
      start, weighed, most = start + c.window, c.count, units
    end
    return start - now + (c.window_ms - quotient(most * c.window_ms, weighed)) * 1000
  end,

  charge = function(c)
    c.count = c.count + c.cost
    local state = table.concat({ written(c.now), written(c.count), written(c.before) }, ':')
    redis.call('SET', c.key, state, 'PX', expiry(c))
  end,

  matters_until = function(c)
    if c.count > 0 then
      return (c.index + 2) * c.window
    end
    return c.before > 0 and (c.index + 1) * c.window or c.now
  end,
}
