-- token_bucket: "missing:unit:moment", what was missing then, in parts of which a token has `unit` and of
-- which `gained` come back each microsecond. Keeping what is missing makes a raised burst usable at once.
ALGORITHMS.token_bucket = {
  read = function(c)
    local missing, unit, moment = numbers(c.key, '^(%d+):(%d+):(%d+)$', 0)
    c.missing = 0
    if not missing then
      return
    end
    if unit < 1 then
      error(BROKEN, 0)
    end
    c.now = math.max(c.now, moment)
    if unit ~= c.unit then -- the limit has changed, and with it the size of a part
      local rest = math.fmod(missing, unit)
      missing = (missing - rest) / unit * c.unit + math.min(c.unit, math.ceil(rest / unit * c.unit))
    end
    missing = math.min(missing, c.capacity * c.unit)
    c.missing = math.max(0, missing - (c.now - moment) * c.gained)
  end,

  used = function(c)
    return quotient_up(c.missing, c.unit)
  end,

  wait = function(c, units)
    -- A large burst may take centuries to fill: now and that together could pass 2^53.
    return c.now - now + quotient_up(c.missing - units * c.unit, c.gained)
  end,

  charge = function(c)
    c.missing = c.missing + c.cost * c.unit
    local state = table.concat({ written(c.missing), written(c.unit), written(c.now) }, ':')
    redis.call('SET', c.key, state, 'PX', expiry(c))
  end,

  matters_until = function(c)
    return c.now + quotient_up(c.missing, c.gained)
  end,
}
