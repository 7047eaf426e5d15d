-- sliding_window_counter: "index:count:before", the count of this interval and of the one before, of which
-- as much is still in use as the window still covers, in whole milliseconds, rounded up.
ALGORITHMS.sliding_window_counter = {
  read = function(c)
    local index, count, before = numbers(c.key, '^(%d+):(%d+):(%d+)$', c.window)
    local current = quotient(c.now, c.window)
    c.window_ms = c.window / 1000
    c.index, c.count, c.before = current, 0, 0
    if index and index >= current then
      c.index, c.count, c.before = index, count, before
      c.now = math.max(c.now, index * c.window)
    elseif index == current - 1 then
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
    local state = table.concat({ written(c.index), written(c.count), written(c.before) }, ':')
    redis.call('SET', c.key, state, 'PX', expiry(c))
  end,

  matters_until = function(c)
    if c.count > 0 then
      return (c.index + 2) * c.window
    end
    return c.before > 0 and (c.index + 1) * c.window or c.now
  end,
}
