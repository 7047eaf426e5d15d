-- sliding_window_counter: "moment:count:before", the moment of the last charge, the count of its interval and
-- of the one before, of which as much is still in use as the window covers, in whole milliseconds, rounded up.
function ALGORITHMS.sliding_window_counter(kind)
  local window, cost = kind.window, kind.cost
  local window_ms = window / 1000
  local current = quotient(now, window) * window
  local lasts = expiry(current + 2 * window - now)

  function kind.read(c)
    local moment, count, before = numbers(c.key, '^(%d+):(%d+):(%d+)$', 0)
    local start = current
    if not moment then
      count, before = 0, 0
    elseif moment > now then
      c.now = moment
      start = quotient(moment, window) * window
    elseif moment < start then -- of an earlier interval, maybe the one before
      count, before = 0, moment >= start - window and count or 0
    end
    c.start, c.count, c.before = start, count, before
    if before == 0 then
      return count
    end
    return count + quotient_up(before * (window_ms - quotient(c.now - start, 1000)), window_ms)
  end

  function kind.wait(c, units)
    local start, weighed, most = c.start, c.before, units - c.count
    if most < 0 then -- only once this interval is the one before
      start, weighed, most = start + window, c.count, units
    end
    return start - now + (window_ms - quotient(most * window_ms, weighed)) * 1000
  end

  function kind.charge(c)
    c.count = c.count + cost
    local counts = ':' .. written(c.count) .. ':' .. written(c.before)
    if c.now == now then
      call('SET', c.key, now_written .. counts, 'PX', lasts)
    else
      call('SET', c.key, written(c.now) .. counts, 'PX', expiry(c.start + 2 * window - c.now))
    end
  end

  function kind.matters_until(c)
    if c.count > 0 then
      return c.start + 2 * window
    end
    return c.before > 0 and c.start + window or c.now
  end
end
