-- sliding_window: exact. A sorted set with an entry for each admitted request: the score is its moment, the
-- member "total:cost", where total is all that was ever charged up to and with this entry, in 16 digits so
-- that entries of the same microsecond stay in order and apart. What is used is then the difference of two
-- totals, and the entry whose end makes room is found by bisection, so no call reads more than a few entries.
do
  local function entry(reply)
    local digits, cost = string.match(reply[1], '^(%d+):(%d+)$')
    local total, moment = tonumber(digits), tonumber(reply[2])
    cost = tonumber(cost)
    if not total or #digits ~= 16 or cost < 1 or math.max(total, moment) >= 2 ^ 53 or moment % 1 ~= 0 then
      error(BROKEN, 0)
    end
    return { member = reply[1], total = total, cost = cost, moment = moment }
  end

  local function at_rank(c, rank)
    return entry(read('ZRANGE', c.key, rank, rank, 'WITHSCORES'))
  end

  local function first_entry_with_total(c, total)
    if c.first.total >= total then
      return c.first
    end
    local low, high = read('ZRANK', c.key, c.first.member), read('ZCARD', c.key) - 1
    while low < high do
      local middle = math.floor((low + high) / 2)
      if at_rank(c, middle).total >= total then
        high = middle
      else
        low = middle + 1
      end
    end
    return at_rank(c, low)
  end

  ALGORITHMS.sliding_window = {
    read = function(c)
      c.total, c.before, c.first, c.last = 0, 0, nil, nil
      local last = read('ZRANGE', c.key, -1, -1, 'WITHSCORES')
      if #last == 0 then
        return
      end
      c.last = entry(last)
      c.total = c.last.total
      c.now = math.max(c.now, c.last.moment)
      local first =
        read('ZRANGEBYSCORE', c.key, '(' .. written(c.now - c.window), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
      if #first > 0 then
        c.first = entry(first)
        c.before = c.first.total - c.first.cost
        if c.before < 0 or c.total <= c.before then
          error(BROKEN, 0)
        end
      end
    end,

    used = function(c)
      return c.first and c.total - c.before or 0
    end,

    wait = function(c, units)
      return first_entry_with_total(c, c.total - units).moment + c.window - now
    end,

    charge = function(c)
      local expired = redis.call('ZCOUNT', c.key, '-inf', written(c.now - c.window))
      if expired > 0 and removable > 0 then
        local removed = math.min(expired, removable)
        redis.call('ZREMRANGEBYRANK', c.key, 0, removed - 1)
        removable = removable - removed
      end
      c.total = c.total + c.cost
      local member = string.format('%016.0f:%.0f', c.total, c.cost)
      redis.call('ZADD', c.key, written(c.now), member)
      c.last = { member = member, total = c.total, cost = c.cost, moment = c.now }
      if not c.first then
        c.first, c.before = c.last, c.total - c.cost
      end
      redis.call('PEXPIRE', c.key, expiry(c))
    end,

    matters_until = function(c)
      return c.last and c.last.moment + c.window or c.now
    end,
  }
end
