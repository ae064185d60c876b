-- Decides a batch of charges: see package store. KEYS are the counters. ARGV is the time,
-- seconds and nanoseconds, or '' and '' for the server's own; then the requests: a charge, or
-- 'g', how many, '1' if some other quota member passes, and for each its group, its mode and
-- itself. A charge is the letter of its algorithm, the number of its counter, what it does (take,
-- take and Count if denied, looK, give back: Undo, cancel a turn: X, reset: Z) and its numbers; beside a counter that
-- hits are reserved on also Hold, Settle a lease, and reset both: Y, which have more numbers. In upper case it is of a
-- limit with a penalty, whose numbers follow.
--
-- The reply is the time, how many charges were admitted, and for each request what its
-- counters were before it; then for each charge what it reserved or settled, the penalty before it, of a log one time more, and of places a lease. A request with a key that some other
-- program wrote changes nothing, and has -1 and the number of the key in place of all that.
--
-- The state of a counter that charges change is a, b and u.
local make, ops, counters, out, pos, request, admitted = {}, {}, {}, {s, n, 0}, 3, 0, 0
local holdings, read_held, write_held, pair, joined, now = {}
local penalties, penalty = {}
local foreign -- the number of a key of this request that another program wrote

local function emit(v) out[#out + 1] = v end

-- read is call on a counter c, which it finds foreign if its key has another type.
local function read(c, command, ...)
  local v = redis.pcall(command, c.key, ...)
  if type(v) ~= 'table' or not v.err then return v end
  if not v.err:find('WRONGTYPE', 1, true) then return call(command, c.key, ...) end
  c.foreign = true
end

-- Windows: a is what was used of the window, b what counts beside it.
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
      c.a = min(c.was or 0, MOST) -- save brings it back
    end,
    tell = function(c) emit(max(c.a, 0)) end, -- ratelimit's refunds go below 0
    decide = count,
    undo = uncount,
    save = function(c)
      if not c.foreign then write_count(c.key, c.value, c.was, c.a, c.expires, c.full) end
    end,
  }
end

function make.r()
  local read_ring, turned, write_ring = ring()
  return {
    args = 6,
    read = function(x, i)
      x.hits, x.limit = tonumber(ARGV[i]), tonumber(ARGV[i + 1])
      x.ls, x.ln, x.k, x.span = ARGV[i + 2], tonumber(ARGV[i + 3]), tonumber(ARGV[i + 4]), tonumber(ARGV[i + 5])
    end,
    -- h is the number of the sub-window that was hit last, num that of the one that is hit now,
    -- told how many in b are of those before it.
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
    tell = function(c)
      emit(c.told and c.a or c.raw or '')
      c.told = c.told or request
    end,
    decide = count,
    undo = uncount,
    save = function(c)
      if not c.changed then return end
      local t = turned(c.k, c.h, c.counts, c.num)
      t[c.num % (c.k + 1) + 1] = c.a
      write_ring(c.key, c.k, t, c.num, c.now, c.span)
    end,
  }
end

-- Logs: a and b are the first of the stamps in the list that stay and the one after the last, u how many
-- of num follow.
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
      c.ls, c.ln, known = read_newest(c.key, x.window)
      c.foreign = not known
      if not c.ls then
        c.a = c.len
        return
      end
      if later(c.ls, c.ln, s, n) then c.ns, c.nn = c.ls, c.ln end
      c.a = expired(c.key, c.len, x.window, c.ns, c.nn)
    end,
    tell = function(c, x)
      local ts, tn = newest(c)
      c.ns, c.nn = s, n
      if later(ts, tn, s, n) then c.ns, c.nn = ts, tn end -- unless a refund took those after the time
      emit(min(c.b - c.a + c.u, x.limit))
      emit(ts)
      emit(tn)
    end,
    decide = function(c, x)
      local a, b, u, hits, limit = c.a, c.b, c.u, x.hits, x.limit
      local function cut(most) -- drops the oldest
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

-- Buckets: a and b are the level, how far the TAT is ahead of the time. Nanoseconds may have sixteenths.
function make.b()
  local read_tat, write_tat = bucket()
  -- drain returns the level (a, b) without what x costs.
  local function drain(a, b, x)
    a, b = minus(a, b, x.ns, x.nn)
    if a < 0 then return 0, 0 end
    return a, b
  end

  return {
    args = 7,
    read = function(x, i)
      x.fine, x.ns, x.nn = ARGV[i] == '1', tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
      x.cs, x.cn, x.ms, x.mn = tonumber(ARGV[i + 3]), tonumber(ARGV[i + 4]), tonumber(ARGV[i + 5]), tonumber(ARGV[i + 6])
    end,
    load = function(c)
      local ts, tn = read_tat(read(c, 'GET'))
      c.foreign = c.foreign or not ts
      c.a, c.b = minus(ts or 0, tn or 0, s, n)
      if c.a < 0 then c.a, c.b = 0, 0 end
    end,
    tell = function(c)
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
      if x.act == 'x' then -- if it is the newest: others were promised theirs
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
    -- What waits can be given back only if it is the newest.
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

-- Places: a is how many are held. They are taken when it is known that their request passes.
function make.p()
  local read_places, is_lease, take, free, write_places = places()
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
      c.a, c.void = read_places(c.key, tonumber(newest[2]), x.window)
    end,
    tell = function(c) emit(c.a) end,
    decide = function(c, x)
      if x.act == 'u' then
        if x.hits == 0 or c.void then return true end
        if free(c.key, x.hits, x.window) then c.a, x.lease = max(c.a - 1, 0), x.hits end
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
    place = function(c, x)
      if c.void then call('DEL', c.key) end
      x.lease, c.void, c.changed = take(c.key, x.nonce, x.seal, x.window), false, true
    end,
    save = function(c)
      if c.changed then write_places(c.key, c.window) end
    end,
  }
end

-- reserving reads what a charge has to do with reservations. held and many are what is held before the request.
local function reserving(x, id)
  local function number(i) return tonumber(ARGV[pos + i]) end
  if not read_held then read_held, write_held, pair, joined, now = reservations() end
  local key = ARGV[pos]
  x.places, x.ttl, x.keep, x.brought = number(1), number(2), ARGV[pos + 3] == '1', ARGV[pos + 4]
  x.nonce, x.seal, x.ls, x.ln = number(5), number(6), number(7), number(8)
  if x.act == 'h' then x.hits = number(9) end
  pos = pos + 10
  local h = holdings[key]
  if not h then
    h = {key = KEYS[tonumber(key)], sum = 0, many = 0, first = 9007199254740992, ended = {}, ttl = x.ttl}
    local summary = read(h, 'HGET', 's')
    if summary then
      h.sum, h.many, h.first, h.ended = read_held(h.key, summary, call('HLEN', h.key) - 1)
    end
    h.foreign = h.foreign or not h.sum
    holdings[key] = h
  end
  if h.foreign then foreign = key end
  x.h, x.held, x.many = h, h.sum, h.many
end

-- Of a limit with a penalty y is that, by the name of the counter: see limiter/penalty.go. The numbers are its key, the
-- window, how many steps, and these; all in seconds.
local function make_penalty()
  local ms, p = s * 1000 + floor(n / 1e6), {}
  local function remembered(y) return y.level > 0 and y.forgotten > ms and y.forgotten <= ms + 4380 * 86400000 end

  function p.read(x)
    local id, y = ARGV[pos], penalties[ARGV[pos]]
    if not y then
      y = {key = KEYS[tonumber(id)], level = 0, forgotten = 0}
      local value = read(y, 'GET')
      if value then
        local level, forgotten = value:match('^(%d%d?) (%d+)$')
        y.foreign = not level or #forgotten > 15
        y.level, y.forgotten = tonumber(level), tonumber(forgotten)
      end
      penalties[id] = y
    end
    if y.foreign then
      foreign, y.level, y.forgotten = id, 0, 0
    end
    x.y, x.lasts, x.steps, x.many = y, tonumber(ARGV[pos + 1]) * 1000, pos + 2, tonumber(ARGV[pos + 2])
    x.level, x.forgotten, x.serves = y.level, y.forgotten, remembered(y) and y.forgotten - x.lasts > ms
    pos = pos + 3 + x.many
  end

  -- deny has x denied, and finds of a log the hit whose end would make room.
  function p.deny(x)
    if x.op == ops.l then
      local c, y = x.c, setmetatable({act = 't'}, {__index = x})
      local a, b, u, changed = c.a, c.b, c.u, c.changed
      if not x.op.decide(c, y) then x.ss, x.sn = y.ss, y.sn end
      c.a, c.b, c.u, c.changed = a, b, u, changed
    end
    return false
  end

  -- begin begins a penalty for x, which was denied, unless another charge has.
  function p.begin(x)
    local y = x.y
    local known = remembered(y)
    if known and y.forgotten - x.lasts > ms then return end
    y.level = min((known and y.level or 0) + 1, x.many)
    y.forgotten = ms + tonumber(ARGV[x.steps + y.level]) * 1000 + x.lasts
    call('SET', y.key, format('%.0f %.0f', y.level, y.forgotten), 'EXAT', floor(y.forgotten / 1000) + 1)
  end

  return p
end

-- with returns x as if it took other hits.
local function with(x, act, hits)
  local y = setmetatable({act = act, hits = hits}, {__index = x})
  if x.op == ops.b then y.ns, y.nn = times(min(hits, 8589934592), x.ls, x.ln) end
  return y
end

-- hold decides a charge that reserves hits. The counter stays as it is.
local function hold(x)
  local c, h, a, b, changed = x.c, x.h, x.c.a, x.c.b, x.c.changed
  local room = x.op.decide(c, with(x, 't', h.sum + x.hits))
  c.a, c.b, c.changed = a, b, changed
  if room and x.hits > 0 then
    room = h.many < x.places
    if room then h.sum, h.many = h.sum + x.hits, h.many + 1 end
  end
  return room
end

-- settle charges what a request has cost whose lease comes back, and drops what that held.
local function settle(x, xs)
  x.room, x.done = true, true
  if x.brought == '0' then return end
  local h = x.h
  local value = call('HGET', h.key, x.brought)
  local ends, hits = pair(value or '')
  if not ends or ends <= now then return end
  x.settled, x.lease = hits, tonumber(x.brought)
  call('HDEL', h.key, x.brought)
  h.sum, h.many, h.changed = h.sum - hits, h.many - 1, true
  for _, cost in ipairs(xs) do
    if cost.c == x.c and not cost.done and (cost.act == 't' or cost.act == 'c' or cost.act == 'k') then
      cost.room, cost.done = true, true
      local y = setmetatable({act = 'c', cs = x.cs, cn = x.cn, ms = x.ms, mn = x.mn}, {__index = cost})
      x.op.decide(x.c, y)
      return
    end
  end
  if x.keep then x.op.decide(x.c, with(x, 'c', hits)) end
end

-- reserve holds hits for good.
local function reserve(x)
  local h, nonce = x.h, x.nonce
  local lease = lease_of(nonce, x.seal)
  while call('HEXISTS', h.key, lease) == 1 do
    nonce = (nonce + 1) % 1048576
    lease = lease_of(nonce, x.seal)
  end
  local ends = (s + x.ttl) * 1000 + math.ceil(n / 1e6)
  call('HSET', h.key, lease, joined(ends, x.hits))
  h.first, h.changed, x.lease = min(h.first, ends), true, tonumber(lease)
end

-- parse reads the charge at pos, and tells what its counter is before this request.
local function parse()
  local op = ops[ARGV[pos]]
  if not op then
    op = make[ARGV[pos]]()
    ops[ARGV[pos]] = op
  end
  local act, id = ARGV[pos + 2], ARGV[pos + 1]
  local x = {op = op, act = act:lower()}
  op.read(x, pos + 3)
  pos = pos + 3 + op.args
  local c = counters[id]
  if not c then
    c = {key = KEYS[tonumber(id)], op = op, u = 0}
    op.load(c, x)
    counters[id] = c
  end
  if c.foreign then
    foreign = id
  elseif c.seen ~= request then
    c.seen = request
    op.tell(c, x)
  end
  x.c = c
  if x.act == 'h' or x.act == 's' or x.act == 'y' then reserving(x, id) end
  if x.act ~= act then
    penalty = penalty or make_penalty()
    penalty.read(x)
  end
  x.takes = (x.act == 't' or x.act == 'c' or x.act == 'h') and (x.hits or x.ns + x.nn) > 0
  return x
end

local function reset(c)
  if c.op == ops.l then c.a = c.b else c.a, c.b = 0, 0 end
  if c.op.leases then call('DEL', c.key) end
  c.u, c.h, c.told, c.raw, c.changed = 0, false, false, '', true
end

local function decide(x)
  x.ss, x.sn = 0, 0
  if x.done then return x.room end
  if x.act == 'z' or x.act == 'y' then
    if x.h then
      call('DEL', x.h.key)
      x.h.sum, x.h.many, x.h.first, x.h.ended, x.h.changed = 0, 0, 9007199254740992, {}, false
    end
    if x.y then
      call('DEL', x.y.key)
      x.y.level, x.y.forgotten = 0, 0
    end
    reset(x.c)
    return true
  end
  if x.serves then x.room = penalty.deny(x) elseif x.act == 'h' then x.room = hold(x) else x.room = x.op.decide(x.c, x) end
  return x.room
end

local function asked(x)
  if x.h then
    emit(x.held)
    emit(x.many)
    emit(x.lease or 0)
    emit(x.settled or 0)
  end
  if x.y then
    emit(x.level)
    emit(x.forgotten)
    if x.takes and not x.room then penalty.begin(x) end
  end
  if x.op == ops.l then
    emit(x.ss)
    emit(x.sn)
  elseif x.op.leases then
    emit(x.lease or 0)
  end
end

-- admit counts a charge that is admitted for good.
local function admit(x)
  admitted = admitted + 1
  if x.act == 'h' then reserve(x) end
  if x.op.leases then x.op.place(x.c, x) end
end

local function save(x)
  local c, h = x.c, x.h
  return {c = c, a = c.a, b = c.b, u = c.u, changed = c.changed, h = h, sum = h and h.sum, many = h and h.many}
end

local function restore(at)
  local c = at.c
  c.a, c.b, c.u, c.changed = at.a, at.b, at.u, at.changed
  if at.h then at.h.sum, at.h.many = at.sum, at.many end
end

-- together decides a group: first what it cannot change, then the rest as if it were admitted.
local function together(xs, lo, hi, deny)
  local charged, before, rest = {}, {}, {}
  for i = lo, hi do
    if xs[i].act == 't' or xs[i].act == 'h' and xs[i].takes then charged[xs[i].c] = true end
  end
  for i = lo, hi do
    local x = xs[i]
    if charged[x.c] and x.act ~= 'c' and not (x.op.leases and x.act == 'u') and not x.done then
      rest[#rest + 1] = x
    else
      local room = decide(x)
      x.counts = true
      deny = deny or not room and x.mode == 'e'
    end
  end
  for _, x in ipairs(rest) do
    local at = before[x.c]
    if not at or x.h and not at.h then
      local new = save(x)
      if at then at.h, at.sum, at.many = new.h, new.sum, new.many else before[x.c] = new end
    end
    local room = decide(x)
    deny = deny or not room and x.mode == 'e'
  end
  if deny then
    for _, at in pairs(before) do restore(at) end
  end
  return deny
end

-- split returns the groups of xs. Those that take leases are last: they depend on the whole request.
local function split(xs)
  local groups, lo = {}, 1
  while lo <= #xs do
    local g = {lo = lo, hi = lo}
    while g.hi < #xs and xs[g.hi + 1].group == xs[lo].group do g.hi = g.hi + 1 end
    for i = lo, g.hi do
      g.quota = g.quota or xs[i].mode == 'q'
      g.last = g.last or xs[i].op.leases and xs[i].act ~= 'u' or xs[i].act == 'h'
    end
    groups[#groups + 1] = g
    lo = g.hi + 1
  end
  return groups
end

-- conclude says which groups are denied in the end, gives back what they took, and admits the rest.
local function conclude(xs, groups, unpassed)
  local refused = false
  local function drop(g)
    g.denied = true
    for i = g.hi, g.lo, -1 do
      local x = xs[i]
      if x.kept and x.act == 'h' then
        x.h.sum, x.h.many, x.kept = x.h.sum - x.hits, x.h.many - 1, false
      elseif x.kept and x.act == 't' and x.op.undo(x.c, x) then
        x.kept = false
      end
    end
  end
  for _, g in ipairs(groups) do
    for i = g.lo, g.hi do
      local x = xs[i]
      x.kept = x.takes and x.room and not x.done and (not g.denied or x.counts)
      refused = refused or x.mode == 'e' and not x.room
    end
    if not g.denied and unpassed and g.quota then drop(g) end
    refused = refused or g.denied
  end
  for _, g in ipairs(groups) do
    if refused and g.last and not g.denied then drop(g) end
  end
  for _, x in ipairs(xs) do
    if x.kept then admit(x) end
  end
end

-- group decides a request of several charges.
local function group()
  local many, passed = tonumber(ARGV[pos + 1]), ARGV[pos + 2] == '1'
  pos = pos + 3
  local xs, grouped, quota, refunds, room = {}, false, false, false, passed
  for i = 1, many do
    local number, mode = ARGV[pos], ARGV[pos + 1]
    pos = pos + 2
    local x = parse()
    x.group, x.mode, xs[i] = number, mode, x
    grouped = grouped or i > 1 and xs[i - 1].group == number
    quota, refunds = quota or mode == 'q', refunds or x.act == 'u' and not x.op.leases
  end
  if foreign then return end
  for _, x in ipairs(xs) do
    if x.act == 's' then settle(x, xs) end
  end
  local early = false
  if grouped and quota and not refunds then -- is there a quota with room, before anything is charged?
    for _, x in ipairs(xs) do
      if x.mode == 'q' and not room then
        local at, done = save(x), x.done
        x.done = false
        room = x.act == 'u' or x.act == 's' or x.op.decide(x.c, x.act == 'h' and with(x, 't', x.hits) or x)
        x.done = done
        restore(at)
      end
    end
    early = not room
  end
  local groups, deny = split(xs), false
  for _, last in ipairs({false, true}) do
    for _, g in ipairs(groups) do
      if (g.last or false) == last then
        local no = last and deny
        if g.lo == g.hi and not no then decide(xs[g.lo]) else g.denied = together(xs, g.lo, g.hi, no or early and g.quota) end
        deny = deny or g.denied
        for i = g.lo, g.hi do deny = deny or xs[i].mode == 'e' and not xs[i].room end
      end
    end
  end
  for _, x in ipairs(xs) do passed = passed or x.mode == 'q' and x.room end
  conclude(xs, groups, quota and not passed)
  for _, x in ipairs(xs) do asked(x) end
end

-- refuse has the reply say no more of this request than its foreign key.
local function refuse(told)
  for i = #out, told + 1, -1 do out[i] = nil end
  for _, c in pairs(counters) do
    if c.told == request then c.told = false end
  end
  emit(-1)
  emit(tonumber(foreign))
  foreign = nil
end

while pos <= #ARGV do
  local told = #out
  request = request + 1
  if ARGV[pos] == 'g' then
    group()
  else
    local x = parse()
    if not foreign then
      if x.act == 's' then settle(x, {}) end
      if decide(x) and x.takes then admit(x) end
      asked(x)
    end
  end
  if foreign then refuse(told) end
end
for _, c in pairs(counters) do c.op.save(c) end
for _, h in pairs(holdings) do
  if h.changed then write_held(h.key, h.sum, h.first, h.ended, h.ttl) end
end
out[3] = admitted
return out
