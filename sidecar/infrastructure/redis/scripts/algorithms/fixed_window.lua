-- fixed_window: "index:count", a count per interval; intervals are aligned to the epoch.
ALGORITHMS.fixed_window = {
  read = function(c)
    local index, count = numbers(c.key, '^(%d+):(%d+)$', c.window)
    c.index, c.count = quotient(c.now, c.window), 0
    if index and index >= c.index then
      c.index, c.count = index, count
      c.now = math.max(c.now, index * c.window)
    end
  end,

  used = function(c)
    return c.count
  end,

  wait = function(c)
    return (c.index + 1) * c.window - now
  end,

  charge = function(c)
    c.count = c.count + c.cost
    redis.call('SET', c.key, written(c.index) .. ':' .. written(c.count), 'PX', expiry(c))
  end,

  matters_until = function(c)
    return c.count > 0 and (c.index + 1) * c.window or c.now
  end,
}
