-- sliding_window: exact. A sorted set with an entry for each admitted request: the score is its moment, the
-- member "total:cost", where total is all that was ever charged up to and with this entry, in 16 digits so
-- that entries of the same microsecond stay in order and apart. What is used is then the difference of two
-- totals, and the entry whose end makes room is found by bisection, so no call reads more than a few entries.
function ALGORITHMS.sliding_window(kind)
  local window, cost = kind.window, kind.cost
  local lasts = expiry(window)
  local cost_written = ':' .. written(cost)

  -- Total and moment of an entry, and its cost as text.
  local function parsed(member, score)
    local digits, costs = match(member, '^(%d+):([1-9]%d*)$')
    local total, moment = tonumber(digits), tonumber(score)
    if not total or #digits ~= 16 or total >= LARGEST or moment >= LARGEST or moment % 1 ~= 0 then
      error(BROKEN, 0)
    end
    return total, moment, costs
  end

  local function at_rank(c, rank)
    local reply = checked(try('ZRANGE', c.key, rank, rank, 'WITHSCORES'))
    return parsed(reply[1], reply[2])
  end

  -- The moment of the first entry with so large a total.
  local function moment_of(c, total)
    if c.first_total >= total then
      return c.first_moment
    end
    local low, high = checked(try('ZRANK', c.key, c.first)), checked(try('ZCARD', c.key)) - 1
    while low < high do
      local middle = math.floor((low + high) / 2)
      if at_rank(c, middle) >= total then
        high = middle
      else
        low = middle + 1
      end
    end
    local _, moment = at_rank(c, low)
    return moment
  end

  -- The first entry after a moment, as member and score, and how many are before it. The two oldest ones
  -- mostly tell: one leaves for each that comes.
  local function first_after(c, moment)
    local oldest = checked(try('ZRANGE', c.key, '0', '1', 'WITHSCORES'))
    if tonumber(oldest[2]) > moment then
      return oldest[1], oldest[2], 0
    end
    if tonumber(oldest[4]) > moment then -- two, since the last one is after it
      return oldest[3], oldest[4], 1
    end
    local first = checked(try('ZRANGEBYSCORE', c.key, '(' .. written(moment), '+inf', 'WITHSCORES', 'LIMIT', '0', '1'))
    return first[1], first[2], nil
  end

  function kind.read(c)
    c.total, c.moment, c.first, c.expired = 0, nil, nil, 0
    local last = checked(try('ZRANGE', c.key, '-1', '-1', 'WITHSCORES'))
    local member = last[1]
    if not member then
      return 0
    end
    local total, moment, costs = parsed(member, last[2])
    c.total, c.moment = total, moment
    if moment > now then
      c.now = moment
    end
    local since = c.now - window
    if moment <= since then
      c.expired = nil
      return 0
    end
    local first, score, expired = first_after(c, since)
    if first ~= member then
      c.first_total, c.first_moment, costs = parsed(first, score)
    else
      c.first_total, c.first_moment = total, moment
    end
    c.first, c.expired = first, expired
    local before = c.first_total - tonumber(costs)
    if before < 0 or total <= before then
      error(BROKEN, 0)
    end
    return total - before
  end

  function kind.wait(c, units)
    return moment_of(c, c.total - units) + window - now
  end

  -- `c.expired`, unless they have to be counted.
  local function remove_expired(c)
    local expired = c.expired or call('ZCOUNT', c.key, '-inf', written(c.now - window))
    local removed = min(expired, removable)
    if removed > 0 then
      call('ZREMRANGEBYRANK', c.key, '0', written(removed - 1))
      removable = removable - removed
    end
  end

  function kind.charge(c)
    if c.expired ~= 0 then
      remove_expired(c)
    end
    local total = c.total + cost
    local member = format('%016.0f', total) .. cost_written
    call('ZADD', c.key, c.now == now and now_written or written(c.now), member)
    c.total, c.moment = total, c.now
    if not c.first then
      c.first, c.first_total, c.first_moment = member, total, c.now
    end
    call('PEXPIRE', c.key, lasts)
  end

  function kind.matters_until(c)
    return c.moment and c.moment + window or c.now
  end
end
