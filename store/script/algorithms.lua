-- The algorithms. Charges change the state of a counter, which is a, b and u. ops maps the letter
-- of an algorithm to its functions, and make to their constructor, which is called for the first
-- charge of the algorithm.
local make, ops, counters, out, pos, request, admitted = {}, {}, {}, {s, n, 0}, 3, 0, 0
local held_by_key, read_held, write_held, drop_lease, pack, reset_held = {}
local penalties, penalty = {}
local foreign -- the number of a key of this request that another program wrote

local function emit(v) out[#out + 1] = v end

-- read calls a command on the key of c. If the key has another type it sets c.foreign.
local function read(c, command, ...)
  local v = redis.pcall(command, c.key, ...)
  if type(v) ~= 'table' or not v.err then return v end
  if not v.err:find('WRONGTYPE', 1, true) then return call(command, c.key, ...) end
  c.foreign = true
end

-- Windows: a is the count of the current window or sub-window, b the sum of the earlier sub-windows
-- that still count.
local function count(c, x)
  local a, room = c.a, x.act == 'u' or c.a + c.b + x.hits <= x.limit
  if x.act == 'u' then
    c.a = a - min(a, x.hits)
  elseif room then
    c.a = a + x.hits
  else
    c.full = true
    if x.act == 'c' then c.a = a + min(x.hits, c.most - a) end
  end
  c.changed = c.changed or c.a ~= a
  return room
end

local function uncount(c, x)
  c.a = c.a - min(c.a, x.hits)
  return true
end

function make.f()
  local read_count, write_count = fixed()
  return {
    args = 3,
    read = function(x, i) x.hits, x.limit, x.expires = tonumber(ARGV[i]), tonumber(ARGV[i + 1]), ARGV[i + 2] end,
    load = function(c, x)
      c.value, c.most, c.b, c.expires = read(c, 'GET'), MOST, 0, x.expires
      c.was = read_count(c.value)
      c.foreign = c.foreign or not c.was
      c.a = max(min(c.was or 0, MOST), 0) -- save corrects it
    end,
    report = function(c) emit(c.a) end,
    decide = count,
    undo = uncount,
    save = function(c)
      if not c.foreign then write_count(c.key, c.value, c.was, c.a, c.expires, c.full) end
    end,
  }
end

function make.r()
  local read_ring, advance, write_ring = ring()
  return {
    args = 6,
    read = function(x, i)
      x.hits, x.limit = tonumber(ARGV[i]), tonumber(ARGV[i + 1])
      x.ls, x.ln, x.k, x.span = ARGV[i + 2], tonumber(ARGV[i + 3]), tonumber(ARGV[i + 4]), tonumber(ARGV[i + 5])
    end,
    -- h is the number of the newest stored sub-window, num that of the current one. reported is the
    -- first request whose reply has the stored value.
    load = function(c, x)
      local k = x.k
      c.k, c.span, c.most, c.a, c.b, c.raw = k, x.span, 4294967295, 0, 0, read(c, 'GET')
      local now, h, counts = read_ring(c.raw, k, x.ls, x.ln)
      c.foreign = c.foreign or not now
      c.now, c.num, c.h, c.counts = now, max(now or 0, h or 0), h, counts
      if not h then return end
      for i = c.num - k, min(h, c.num - 1) do c.b = c.b + counts[i % (k + 1) + 2] end
      if c.num == h then c.a = counts[h % (k + 1) + 2] end
    end,
    report = function(c)
      emit(c.reported and c.a or c.raw or '')
      c.reported = c.reported or request
    end,
    decide = function(c, x)
      if x.act == 'r' then
        if x.limit < c.num then -- a later sub-window has begun
          if c.h and x.limit <= c.h and x.limit >= c.num - c.k then
            local i = x.limit % (c.k + 1) + 2
            local was = c.counts[i]
            c.counts[i] = was - min(was, x.hits)
            c.b, c.changed = c.b - was + c.counts[i], true
          end
          return true
        end
        if x.limit > c.num then return true end -- the clock was set back
        x.act = 'u'
      end
      return count(c, x)
    end,
    undo = uncount,
    save = function(c)
      if not c.changed then return end
      local t = advance(c.k, c.h, c.counts, c.num)
      t[c.num % (c.k + 1) + 1] = c.a
      write_ring(c.key, c.k, t, c.num, c.now, c.span)
    end,
  }
end

-- Logs: the elements [a, b) of the list stay. u is the number of new hits after them, at (ns, nn). A
-- hit gets the time of the newest one if that is later, so the list stays sorted.
function make.l()
  local read_newest, expired = log()
  local function newest(c)
    if c.u > 0 then return c.ns, c.nn end
    if c.b <= c.a then return 0, 0 end
    if c.b == c.len then return c.ls, c.ln end
    return stamp(call('LINDEX', c.key, c.b - 1))
  end

  return {
    args = 3,
    read = function(x, i) x.hits, x.limit, x.window = tonumber(ARGV[i]), tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]) end,
    load = function(c, x)
      c.len, c.a, c.u, c.ns, c.nn, c.window = read(c, 'LLEN') or 0, 0, 0, s, n, x.window
      c.b = c.len
      if c.len == 0 then return end
      local known
      c.ls, c.ln, known = read_newest(c.key)
      c.foreign = not known
      if not c.ls then
        c.a = c.len
        return
      end
      if later(c.ls, c.ln, s, n) then c.ns, c.nn = c.ls, c.ln end
      c.a = expired(c.key, c.len, x.window, s, n)
    end,
    report = function(c, x)
      local ts, tn = newest(c)
      c.ns, c.nn = s, n
      if later(ts, tn, s, n) then c.ns, c.nn = ts, tn end -- unless a refund removed the hits after now
      emit(min(c.b - c.a + c.u, x.limit))
      emit(ts)
      emit(tn)
    end,
    decide = function(c, x)
      local a, b, u, hits, limit = c.a, c.b, c.u, x.hits, x.limit
      local function cut(most) -- drops the oldest hits
        local excess = b - a + u - most
        if excess > 0 then
          local old = min(excess, b - a)
          a, u = a + old, u - (excess - old)
        end
      end
      cut(limit)
      local total, room = b - a + u, true
      if x.act == 'u' then
        hits = min(hits, total)
        local new = min(u, hits)
        b, u = b - (hits - new), u - new
      elseif total + hits <= limit then
        u = u + hits
      else
        room = false
        if x.act == 'c' then
          hits = min(hits, limit)
          u = u + hits
          cut(limit)
        else
          hits = 0
        end
        if x.hits <= limit then
          local leaver = a + (b - a + u + x.hits - limit) - 1
          if leaver < b then x.ss, x.sn = stamp(call('LINDEX', c.key, leaver)) else x.ss, x.sn = c.ns, c.nn end
        end
      end
      if hits > 0 then c.a, c.b, c.u, c.changed = a, b, u, true end
      if room then x.ss, x.sn = newest(c) end
      return room
    end,
    undo = function(c, x)
      c.u = c.u - min(c.u, x.hits)
      return true
    end,
    save = function(c)
      if not c.changed then return end
      if c.a >= c.b then
        if c.len > 0 then call('DEL', c.key) end
      elseif c.a > 0 or c.b < c.len then
        call('LTRIM', c.key, c.a, c.b - 1)
      end
      if c.u == 0 then return end
      local text, push = format('%.0f%09d', c.ns, c.nn), {}
      for i = 1, c.u do push[i] = text end
      call('RPUSH', c.key, unpack(push))
      call('EXPIREAT', c.key, c.ns + c.window + 2)
    end,
  }
end

-- Buckets: (a, b) is the level, the TAT less the time. Nanoseconds may have sixteenths.
function make.b()
  local read_tat, write_tat = bucket()
  -- drain returns the level (a, b) less the cost of x.
  local function drain(a, b, x)
    a, b = minus(a, b, x.ns, x.nn)
    if a < 0 then return 0, 0 end
    return a, b
  end

  return {
    args = 9,
    read = function(x, i)
      x.fine, x.ns, x.nn = ARGV[i] == '1', tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
      x.cs, x.cn, x.ms, x.mn = tonumber(ARGV[i + 3]), tonumber(ARGV[i + 4]), tonumber(ARGV[i + 5]), tonumber(ARGV[i + 6])
      x.hs, x.hn = tonumber(ARGV[i + 7]), tonumber(ARGV[i + 8])
    end,
    load = function(c, x)
      local ts, tn = read_tat(read(c, 'GET'), x.hs, x.hn)
      c.foreign = c.foreign or not ts
      c.a, c.b = minus(ts or 0, tn or 0, s, n)
      if c.a < 0 then c.a, c.b = 0, 0 end
    end,
    report = function(c)
      if c.a == 0 and c.b == 0 then
        emit(0)
        emit(0)
      else
        local ts, tn = plus(s, n, c.a, c.b)
        emit(ts)
        emit(tn * 16)
      end
    end,
    decide = function(c, x)
      local a, b = c.a, c.b
      if x.act == 'x' then -- only if it is the newest: otherwise later hits are scheduled behind it
        local ts, tn = plus(s, n, a, b)
        if (a > 0 or b > 0) and ts == x.cs and tn == x.cn then
          c.a, c.b = drain(a, b, x)
          c.changed = true
        end
        return true
      end
      if not x.fine then
        b = math.ceil(b)
        if b == 1e9 then a, b = a + 1, 0 end
      elseif later(a, b, 31544796, 93022208) then
        a, b = 31544796, 93022208
      end
      if x.act == 'u' then
        if (x.ns > 0 or x.nn > 0) and (a > 0 or b > 0) and not later(a, b, x.cs, x.cn) then
          c.a, c.b = drain(a, b, x)
          c.changed = true
        end
        return true
      end
      if x.act == 'a' and later(x.ms, x.mn, a, b) then a, b = x.ms, x.mn end
      local as, an = plus(a, b, x.ns, x.nn)
      local room = not later(as, an, x.cs, x.cn)
      if room then
        if x.ns > 0 or x.nn > 0 then c.a, c.b, c.changed = as, an, true end
      elseif x.act == 'c' then
        if later(as, an, x.ms, x.mn) then as, an = x.ms, x.mn end
        if later(as, an, a, b) then c.a, c.b, c.changed = as, an, true end
      end
      x.ts, x.tn = c.a, c.b
      return room
    end,
    -- A delayed hit can be undone only if it is the newest.
    undo = function(c, x)
      if later(x.ts, x.tn, x.ms, x.mn) or later(c.a, c.b, x.ms, x.mn) then
        if c.a ~= x.ts or c.b ~= x.tn then return false end
      end
      c.a, c.b = drain(c.a, c.b, x)
      return true
    end,
    save = function(c)
      if not c.changed then return end
      write_tat(c.key, plus(s, n, c.a, c.b))
    end,
  }
end

-- Permits of a concurrency limit: a is the number of held permits. A permit is acquired only after
-- its request has been admitted.
function make.p()
  local read_permits, is_lease, acquire, release, write_permits = permits()
  return {
    args = 5,
    leases = true,
    read = function(x, i)
      x.hits, x.limit, x.window = tonumber(ARGV[i]), tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
      x.nonce, x.seal = tonumber(ARGV[i + 3]), tonumber(ARGV[i + 4])
    end,
    load = function(c, x)
      c.window, c.a, c.b = x.window, 0, 0
      local newest = read(c, 'ZRANGE', -1, -1, 'WITHSCORES')
      if not newest or not newest[1] then return end
      c.foreign = c.foreign or not is_lease(newest[1])
      c.a, c.ahead = read_permits(c.key, tonumber(newest[2]), x.window)
    end,
    report = function(c) emit(c.a) end,
    decide = function(c, x)
      if x.act == 'u' then
        if x.hits == 0 then return true end
        if release(c.key, x.hits, x.window) then c.a, x.lease = max(c.a - 1, 0), x.hits end
        c.changed = true
        return true
      end
      if x.hits == 0 then return c.a <= x.limit end
      local room = c.a < x.limit
      if room then c.a = c.a + 1 end
      return room
    end,
    undo = function(c)
      c.a = c.a - 1
      return true
    end,
    acquire = function(c, x)
      x.lease, c.changed = acquire(c.key, x.nonce, x.seal, x.window), true
    end,
    save = function(c)
      if c.changed then write_permits(c.key, c.window, c.ahead) end
    end,
  }
end
