-- token_bucket: "missing:unit:moment", what was missing then, in parts of which a token has `unit` and of
-- which `gained` come back each microsecond. Keeping what is missing makes a raised burst usable at once.
function ALGORITHMS.token_bucket(kind)
  local gained, unit = kind.gained, kind.unit
  local most, charged = kind.capacity * unit, kind.cost * unit
  local between = ':' .. written(unit) .. ':'

  function kind.read(c)
    local missing, unit_then, moment = numbers(c.key, '^(%d+):(%d+):(%d+)$', 0)
    if not missing then
      c.missing = 0
      return 0
    end
    if unit_then < 1 then
      error(BROKEN, 0)
    end
    if moment > now then
      c.now = moment
    end
    if unit_then ~= unit then -- the limit has changed, and with it the size of a part
      local rest = fmod(missing, unit_then)
      missing = (missing - rest) / unit_then * unit + min(unit, ceil(rest / unit_then * unit))
    end
    missing = max(0, min(missing, most) - (c.now - moment) * gained)
    c.missing = missing
    return quotient_up(missing, unit)
  end

  function kind.wait(c, units)
    -- A large burst may take centuries to fill: now and that together could pass 2^53.
    return c.now - now + quotient_up(c.missing - units * unit, gained)
  end

  function kind.charge(c)
    local missing = c.missing + charged
    c.missing = missing
    local moment = c.now == now and now_written or written(c.now)
    call('SET', c.key, written(missing) .. between .. moment, 'PX', expiry(quotient_up(missing, gained)))
  end

  function kind.matters_until(c)
    return c.now + quotient_up(c.missing, gained)
  end
end
