-- Part of the decision script: reservations and penalties, which are stored in companion keys of a
-- counter.

-- read_reservation reads the reservation arguments of a charge, and the hits and the number of
-- reservations held before the request.
local function read_reservation(x, id)
  local function number(i) return tonumber(ARGV[pos + i]) end
  if not read_held then read_held, write_held, drop_lease, pack, reset_held = reservations() end
  local key = ARGV[pos]
  x.max_reservations, x.ttl, x.keep, x.returned = number(1), number(2), ARGV[pos + 3] == '1', ARGV[pos + 4]
  x.nonce, x.seal, x.ls, x.ln = number(5), number(6), number(7), number(8)
  if x.act == 'h' then x.hits = number(9) end
  x.longest = number(10)
  pos = pos + 11
  local h = held_by_key[key]
  if not h then
    h = {key = KEYS[tonumber(key)], sum = 0, many = 0, first = 9007199254740992, ended = {}, tombstones = 0, ttl = x.ttl}
    local summary = read(h, 'HGET', 's')
    if summary then
      h.sum, h.many, h.first, h.ended, h.tombstones = read_held(h.key, summary, call('HLEN', h.key) - 1, x.longest)
    end
    h.foreign = h.foreign or not h.sum
    held_by_key[key] = h
  end
  if h.foreign then foreign = key end
  h.ttl = max(h.ttl, x.ttl)
  x.h, x.held, x.many = h, h.sum, h.many
end

-- make_penalty returns the functions of penalties: see limiter/penalty.go. y is the penalty of a
-- counter. The arguments of a charge are its key, the window, the number of steps, and the steps;
-- times are in seconds.
local function make_penalty()
  local ms, p = s * 1000 + floor(n / 1e6), {}

  local function step(x, level) return tonumber(ARGV[x.steps + min(level, x.many)]) * 1000 end

  local function remembered(x)
    local y = x.y
    if y.level == 0 or y.forgotten <= ms then return false end
    return y.forgotten - x.lasts - step(x, y.level) <= ms + AHEAD * 1000
  end

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
    x.level, x.forgotten, x.penalised = y.level, y.forgotten, remembered(x) and y.forgotten - x.lasts > ms
    pos = pos + 3 + x.many
  end

  -- deny denies x. For a log it finds the hit whose expiry would admit x.
  function p.deny(x)
    if x.op == ops.l then
      local c, y = x.c, setmetatable({act = 't'}, {__index = x})
      local a, b, u, changed = c.a, c.b, c.u, c.changed
      if not x.op.decide(c, y) then x.ss, x.sn = y.ss, y.sn end
      c.a, c.b, c.u, c.changed = a, b, u, changed
    end
    return false
  end

  -- begin starts a penalty for x, which was denied, unless another charge has started one.
  function p.begin(x)
    local y = x.y
    local known = remembered(x)
    if known and y.forgotten - x.lasts > ms then return end
    y.level = min((known and y.level or 0) + 1, x.many)
    y.forgotten = ms + step(x, y.level) + x.lasts
    call('SET', y.key, format('%.0f %.0f', y.level, y.forgotten), 'EXAT', floor(y.forgotten / 1000) + 1)
  end

  return p
end

-- with returns a copy of x with another action and other hits.
local function with(x, act, hits)
  local y = setmetatable({act = act, hits = hits}, {__index = x})
  if x.op == ops.b then y.ns, y.nn = times(min(hits, 8589934592), x.ls, x.ln) end
  return y
end

-- decide_reservation decides a charge that reserves hits. It does not change the counter.
local function decide_reservation(x)
  local c, h, a, b, changed = x.c, x.h, x.c.a, x.c.b, x.c.changed
  local room = x.op.decide(c, with(x, 't', h.sum + x.hits))
  c.a, c.b, c.changed = a, b, changed
  if room and x.hits > 0 then
    room = h.many < x.max_reservations
    if room then h.sum, h.many = h.sum + x.hits, h.many + 1 end
  end
  return room
end

-- settle charges the cost of a request whose lease is returned, and releases the reservation. If the
-- request returns several leases of a counter, each settles one cost, and the last one the rest.
local function settle(x, xs)
  x.room, x.done = true, true
  if x.returned == '0' then return end
  local h = x.h
  local hits, tombstones, void = 0, h.tombstones
  hits, h.first, h.tombstones, void = drop_lease(h.key, x.returned, call('HGET', h.key, x.returned), x.ttl, h.first, tombstones, x.longest)
  h.changed = h.changed or h.tombstones > tombstones
  if hits == 0 and not void then return end
  x.settled, x.lease = hits, tonumber(x.returned)
  if not void then h.sum, h.many, h.changed = max(h.sum - hits, 0), max(h.many - 1, 0), true end
  local last, passed, costs = true, false, 0
  for _, y in ipairs(xs) do
    last = last and not (passed and y.act == 's' and y.c == x.c)
    passed = passed or y == x
  end
  for _, cost in ipairs(xs) do
    if (last or costs == 0) and cost.c == x.c and not cost.done and (cost.act == 't' or cost.act == 'c' or cost.act == 'k') then
      cost.room, cost.done, costs = true, true, costs + 1
      if not void then x.op.decide(x.c, setmetatable({act = 'c', cs = x.cs, cn = x.cn, ms = x.ms, mn = x.mn}, {__index = cost})) end
    end
  end
  if costs == 0 and x.keep and not void then x.op.decide(x.c, with(x, 'c', hits)) end
end

-- reserve writes a reservation of an admitted request.
local function reserve(x)
  local h, nonce = x.h, x.nonce
  local lease = lease_of(nonce, x.seal)
  while call('HEXISTS', h.key, lease) == 1 do
    nonce = (nonce + 2) % 1048576
    lease = lease_of(nonce, x.seal)
  end
  local ends = (s + x.ttl) * 1000 + math.ceil(n / 1e6)
  call('HSET', h.key, lease, pack(ends, x.hits))
  h.first, h.changed, x.lease = min(h.first, ends), true, tonumber(lease)
end
