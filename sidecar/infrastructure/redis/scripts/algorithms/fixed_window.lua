-- fixed_window: "index:count", a count per interval; intervals are aligned to the epoch.
function ALGORITHMS.fixed_window(kind)
  local window, cost = kind.window, kind.cost
  local current = quotient(now, window)
  local lasts = expiry((current + 1) * window - now)

  function kind.read(c)
    local index, count = numbers(c.key, '^(%d+):(%d+)$', window)
    if not index or index < current then
      index, count = current, 0
    elseif index > current then
      c.now = index * window
    end
    c.index, c.count = index, count
    return count
  end

  function kind.wait(c)
    return (c.index + 1) * window - now
  end

  function kind.charge(c)
    c.count = c.count + cost
    local state = written(c.index) .. ':' .. written(c.count)
    call('SET', c.key, state, 'PX', c.now == now and lasts or expiry(window))
  end

  function kind.matters_until(c)
    return c.count > 0 and (c.index + 1) * window or c.now
  end
end
