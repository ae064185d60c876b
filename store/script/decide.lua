-- The decision script. KEYS are the counters. ARGV is the time, seconds and nanoseconds, or '' and
-- '' for the server's clock; then the requests. A request is one charge; or 'g', the number of
-- charges, '1' if a quota passes that has no charge in the request, and for each charge its group,
-- its mode and the charge.
--
-- A charge is the letter of its algorithm, the number of its counter, its action, and its
-- arguments. The actions:
--
--     t charge    c charge, and count even if denied    k peek
--     u refund    x cancel a delayed hit                z reset
--     a charge a block of a bucket                      r return hits to a sub-window
--
-- and, for a counter with reservations, whose charges have more arguments:
--
--     h reserve   s settle a lease                      y reset the counter and its reservations
--
-- The mode of a charge is e (enforced), s (shadow) or q (quota). A digit after it marks a choice, of
-- which the first alternative with room is charged: 1 for its first alternative, 2 for the others.
--
-- An action in upper case is for a limit with a penalty, whose arguments follow. After the charges
-- of a request come its set-offs: refunds of mode 'o', whose group is the number of the charge that
-- they were set off against. They are made last, and only if the hits of that charge do not count.
--
-- The reply is the time, the number of admitted charges, and for each request the state of its
-- counters before it. Then for each charge: its reservation or settlement; the penalty before it;
-- for a log one more time; for a concurrency limit a lease. Set-offs of a log have that time as
-- well, or 0 0. A request with a key that another program wrote changes nothing; its reply is -1
-- and the number of the key.

-- parse_charge reads the charge at pos, and emits the state of its counter before this request.
local function parse_charge()
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
    op.report(c, x)
  end
  x.c = c
  if x.act == 'h' or x.act == 's' or x.act == 'y' then read_reservation(x, id) end
  if x.act ~= act then
    penalty = penalty or make_penalty()
    penalty.read(x)
  end
  x.adds_hits = (x.act == 't' or x.act == 'c' or x.act == 'h' or x.act == 'a') and (x.hits or x.ns + x.nn) > 0
  return x
end

local function reset(c)
  if c.op == ops.l then c.a = c.b else c.a, c.b = 0, 0 end
  if c.op.leases then call('DEL', c.key) end
  c.u, c.h, c.reported, c.raw, c.changed = 0, false, false, '', true
end

local function decide(x)
  x.ss, x.sn = 0, 0
  if x.done then return x.room end
  if x.act == 'z' or x.act == 'y' then
    if x.h then
      x.h.sum, x.h.many, x.h.ended = 0, 0, {}
      x.h.first, x.h.tombstones = reset_held(x.h.key, x.h.ttl)
      x.h.changed = x.h.tombstones > 0
    end
    if x.y then
      call('DEL', x.y.key)
      x.y.level, x.y.forgotten = 0, 0
    end
    reset(x.c)
    return true
  end
  if x.penalised then x.room = penalty.deny(x) elseif x.act == 'h' then x.room = decide_reservation(x) else x.room = x.op.decide(x.c, x) end
  return x.room
end

local function emit_outcome(x)
  if x.h then
    emit(x.held)
    emit(x.many)
    emit(x.lease or 0)
    emit(x.settled or 0)
  end
  if x.y then
    emit(x.level)
    emit(x.forgotten)
    if x.adds_hits and not x.room then penalty.begin(x) end
  end
  if x.op == ops.l then
    emit(x.ss)
    emit(x.sn)
  elseif x.op.leases then
    emit(x.lease or 0)
  end
end

-- admit counts an admitted charge, and writes its lease.
local function admit(x)
  admitted = admitted + 1
  if x.act == 'h' then reserve(x) end
  if x.op.leases then x.op.acquire(x.c, x) end
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

-- choose decides the choice that begins at xs[i], and reports whether an alternative has room. The
-- others are skipped.
local function choose(xs, i)
  local room, last = false, i
  while xs[last + 1] and xs[last + 1].choice == '2' do last = last + 1 end
  for k = i, last do
    local x = xs[k]
    if room and x.adds_hits then
      x.room, x.ss, x.sn = false, 0, 0
    else
      local has_room = decide(x)
      room = room or has_room
    end
  end
  for k = i, last do xs[k].skipped = room and not xs[k].room end
  return room
end

-- choose_all decides the choices of a group one after another. If alone is set, each is decided as if
-- it were alone, and undone. It reports whether one of them denies the group; then all are undone.
local function choose_all(xs, lo, hi, alone)
  local before, deny = {}, false
  local function restore_all()
    for _, at in pairs(before) do restore(at) end
  end
  for i = lo, hi do
    local x = xs[i]
    if x.choice and not before[x.c] then before[x.c] = save(x) end
  end
  for i = lo, hi do
    if xs[i].choice == '1' then
      local room = choose(xs, i)
      deny = deny or not room and xs[i].mode == 'e'
      if alone then restore_all() end
    end
  end
  if deny then restore_all() end
  return deny
end

-- is_choice reports whether a group is one choice.
local function is_choice(xs, lo, hi)
  if xs[lo].choice ~= '1' then return false end
  for i = lo + 1, hi do
    if xs[i].choice ~= '2' then return false end
  end
  return true
end

-- decide_group decides a group: first the charges that do not depend on it, then the others as if
-- it were admitted, and the choices last.
local function decide_group(xs, lo, hi, deny)
  local charged, before, rest, choices = {}, {}, {}, false
  for i = lo, hi do
    local x = xs[i]
    if x.choice then
      choices = true
    elseif x.act == 't' or x.act == 'h' and x.adds_hits then
      charged[x.c] = true
    end
  end
  for i = lo, hi do
    local x = xs[i]
    if x.choice then -- decided below
    elseif charged[x.c] and x.act ~= 'c' and not (x.op.leases and x.act == 'u') and not x.done then
      rest[#rest + 1] = x
    else
      local room = decide(x)
      x.counts = true
      deny = deny or not room and x.mode == 'e'
    end
  end
  local denied = choices and choose_all(xs, lo, hi, true)
  deny = deny or denied
  for _, x in ipairs(rest) do
    local at = before[x.c]
    if not at or x.h and not at.h then
      local new = save(x)
      if at then at.h, at.sum, at.many = new.h, new.sum, new.many else before[x.c] = new end
    end
    local room = decide(x)
    deny = deny or not room and x.mode == 'e'
  end
  deny = deny or choices and choose_all(xs, lo, hi, false)
  if deny then
    for _, at in pairs(before) do restore(at) end
  end
  return deny
end

-- split returns the groups of xs. Groups that acquire leases are decided last: they depend on the
-- complete request.
local function split(xs)
  local groups, lo = {}, 1
  while lo <= #xs do
    local g = {lo = lo, hi = lo}
    while g.hi < #xs and xs[g.hi + 1].group == xs[lo].group do g.hi = g.hi + 1 end
    for i = lo, g.hi do
      g.quota = g.quota or xs[i].mode == 'q'
      g.last = g.last or xs[i].adds_hits and (xs[i].op.leases or xs[i].act == 'h')
    end
    groups[#groups + 1] = g
    lo = g.hi + 1
  end
  return groups
end

-- finish_groups determines which groups are denied, undoes their charges, and admits the others.
local function finish_groups(xs, groups, unpassed)
  local denied_any = false
  local function deny_group(g)
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
      x.kept = x.adds_hits and x.room and not x.done and (not g.denied or x.counts)
      denied_any = denied_any or x.mode == 'e' and not x.room and not x.skipped
    end
    if not g.denied and unpassed and g.quota then deny_group(g) end
    denied_any = denied_any or g.denied
  end
  for _, g in ipairs(groups) do
    if denied_any and g.last and not g.denied then deny_group(g) end
  end
  for _, x in ipairs(xs) do
    if x.kept then admit(x) end
  end
end

-- apply_set_offs applies the set-offs of a request.
local function apply_set_offs(xs, groups, set_offs)
  for _, g in ipairs(groups) do
    for i = g.lo, g.hi do xs[i].denied = g.denied end
  end
  for _, x in ipairs(set_offs) do
    local of = xs[tonumber(x.group)]
    if of.kept or not of.penalised and (of.act == 'c' or not of.adds_hits and of.room and not of.denied) then
      x.ss, x.sn = 0, 0
    else
      decide(x)
    end
  end
end

-- decide_request decides a request of several charges.
local function decide_request()
  local many, passed = tonumber(ARGV[pos + 1]), ARGV[pos + 2] == '1'
  pos = pos + 3
  local xs, set_offs, grouped, quota, refunds, room = {}, nil, false, false, false, passed
  for i = 1, many do
    local number, mode = ARGV[pos], ARGV[pos + 1]
    pos = pos + 2
    local x = parse_charge()
    if #mode > 1 then
      x.choice = mode:sub(2)
      mode = mode:sub(1, 1)
    end
    x.group, x.mode = number, mode
    if mode == 'o' then
      set_offs = set_offs or {}
      set_offs[#set_offs + 1] = x
    else
      xs[i] = x
      grouped = grouped or i > 1 and xs[i - 1].group == number
      quota, refunds = quota or mode == 'q', refunds or x.act == 'u' and not x.op.leases
    end
  end
  if foreign then return end
  for _, x in ipairs(xs) do
    if x.act == 's' then settle(x, xs) end
  end
  local early = false
  if grouped and quota and not refunds then -- does a quota admit, before anything is charged?
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
        local denied = last and deny
        if g.lo == g.hi and not denied then
          decide(xs[g.lo])
        elseif not denied and is_choice(xs, g.lo, g.hi) then
          choose(xs, g.lo)
        else
          g.denied = decide_group(xs, g.lo, g.hi, denied or early and g.quota)
        end
        deny = deny or g.denied
        for i = g.lo, g.hi do deny = deny or xs[i].mode == 'e' and not xs[i].room and not xs[i].skipped end
      end
    end
  end
  for _, x in ipairs(xs) do passed = passed or x.mode == 'q' and x.room end
  finish_groups(xs, groups, quota and not passed)
  if set_offs then apply_set_offs(xs, groups, set_offs) end
  for _, x in ipairs(xs) do emit_outcome(x) end
  if set_offs then
    for _, x in ipairs(set_offs) do emit_outcome(x) end
  end
end

-- replace_by_foreign replaces the reply of this request, from out[start + 1] on, by the number of
-- its foreign key.
local function replace_by_foreign(start)
  for i = #out, start + 1, -1 do out[i] = nil end
  for _, c in pairs(counters) do
    if c.reported == request then c.reported = false end
  end
  emit(-1)
  emit(tonumber(foreign))
  foreign = nil
end

while pos <= #ARGV do
  local start = #out
  request = request + 1
  if ARGV[pos] == 'g' then
    decide_request()
  else
    local x = parse_charge()
    if not foreign then
      if x.act == 's' then settle(x, {}) end
      if decide(x) and x.adds_hits then admit(x) end
      emit_outcome(x)
    end
  end
  if foreign then replace_by_foreign(start) end
end
for _, c in pairs(counters) do c.op.save(c) end
for _, h in pairs(held_by_key) do
  if h.changed then write_held(h.key, h.sum, h.first, h.ended, h.ttl, h.tombstones) end
end
out[3] = admitted
return out
