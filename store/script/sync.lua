-- The sync script charges counters with hits that a replica admitted without the store: see
-- unsynced.go. KEYS are the counters. ARGV is the time, seconds and nanoseconds, or '' and '' for
-- the server's clock; then for each counter the letter of its algorithm, its number, and its
-- arguments.
--
-- The reply is the time, 0, and for each counter 1 and its state as in the reply of decide.lua. For
-- a bucket the TAT before, and the TAT without the cap of the highest level, follow. For a counter
-- that cannot be charged the reply is the error.
local ops, pos = {}, 3

local out = {s, n, 0}

local function number(i) return tonumber(ARGV[i]) end

-- A fixed window: the hits, and the expiry of the key.
ops.f = function(key, i)
  local read_count, write_count = fixed()
  local value = call('GET', key)
  local was = read_count(value)
  if not was then return end
  local is = min(max(min(was, MOST), 0) + number(i), MOST)
  write_count(key, value, was, is, ARGV[i + 1], true)
  return {is}
end

-- A bucket: the cost of the hits, the TAT that they led to, the highest level, and the highest
-- level of a bucket that did not start ahead. The new TAT is the old one plus the cost, or at least
-- the TAT that the hits led to.
ops.b = function(key, i)
  local read_tat, write_tat = bucket()
  local xs, xn = read_tat(call('GET', key), number(i + 6), number(i + 7))
  if not xs then return end
  local ts, tn = number(i + 2), number(i + 3)
  local us, un = plus(xs, xn, number(i), number(i + 1))
  if later(ts, tn, us, un) then us, un = ts, tn end
  local as, an = us, un
  local ms, mn = plus(s, n, number(i + 4), number(i + 5))
  if later(as, an, ms, mn) then as, an = ms, mn end
  if later(as, an, xs, xn) and later(as, an, s, n) then write_tat(key, as, an) else as, an = xs, xn end
  if not later(as, an, s, n) then as, an = 0, 0 end
  return {as, an * 16, xs, xn * 16, us, un * 16}
end

-- A sliding window: the sub-windows as in call.go, their number k, the lifetime of the key, and the
-- number of pairs that follow: a sub-window and its hits, oldest first.
ops.r = function(key, i)
  local k, last = number(i + 2), i + 3 + 2 * number(i + 4)
  local raw = call('GET', key)
  local read_ring, advance, write_ring = ring()
  local now, h, counts = read_ring(raw, k, ARGV[i], number(i + 1))
  if not now then return end
  local newest = max(now, h or now, number(last))
  local t, any = advance(k, h, counts, newest), false
  for j = i + 5, last, 2 do
    local x = number(j)
    if x >= newest - k then
      local at = x % (k + 1) + 1
      t[at], any = min(t[at] + number(j + 1), 4294967295), true
    end
  end
  return {any and write_ring(key, k, t, newest, now, number(i + 3)) or raw or ''}
end

-- A log: its limit, its window, and the number of triples that follow: a time and its hits, oldest
-- first. Hits older than the newest stored hit get its time, so that the log stays sorted.
ops.l = function(key, i)
  local limit, window, many = number(i), number(i + 1), number(i + 2)
  local read_newest, expired = log()
  local len, ns, nn, known = call('LLEN', key), 0, 0, true
  if len > 0 then
    ns, nn, known = read_newest(key)
    if not known then return end
    if not ns then
      call('DEL', key)
      len, ns, nn = 0, 0, 0
    end
  end
  local push = {}
  for j = i + 3, i + 3 * many, 3 do
    local rs, rn = number(j), number(j + 1)
    if later(rs + window, rn, s, n) then
      if later(rs, rn, ns, nn) then ns, nn = rs, rn end
      local text = format('%.0f%09d', ns, nn)
      for _ = 1, number(j + 2) do push[#push + 1] = text end
    end
  end
  local total = len - expired(key, len, window, s, n) + #push
  if #push > 0 then
    call('RPUSH', key, unpack(push))
    call('LTRIM', key, -min(total, limit), -1)
    call('EXPIREAT', key, ns + window + 2)
  end
  return {total, ns, nn}
end

-- Permits of a concurrency limit: the window, the number of leases that were acquired without the
-- store, the number released, the acquired leases with their ends, and the released ones. A lease
-- that another replica has released is not acquired.
ops.p = function(key, i)
  local _, is_lease, _, release, write_permits, record_lease, count = permits()
  local newest = call('ZRANGE', key, -1, -1)[1]
  if newest and not is_lease(newest) then return end
  local window, released_from = number(i), i + 3 + 2 * number(i + 1)
  for j = i + 3, released_from - 1, 2 do record_lease(key, ARGV[j], number(j + 1)) end
  for j = released_from, released_from + number(i + 2) - 1 do release(key, number(j), window) end
  write_permits(key, window, true)
  return {count(key, window)}
end

-- Reservations: their duration, the number of leases that were acquired without the store, the
-- number released, the acquired leases with their ends and hits, and the released ones.
ops.h = function(key, i)
  local read_held, write_held, drop_lease, pack = reservations()
  local sum, many, first, ended, tombstones = 0, 0, 9007199254740992, {}, 0
  local summary, ttl, released_from = call('HGET', key, 's'), number(i), i + 3 + 3 * number(i + 1)
  if summary then
    sum, many, first, ended, tombstones = read_held(key, summary, 0, math.huge)
    if not sum then return end
  end
  for j = i + 3, released_from - 1, 3 do
    if number(j + 1) > s * 1000 + floor(n / 1e6) and call('HEXISTS', key, ARGV[j]) == 0 then
      call('HSET', key, ARGV[j], pack(number(j + 1), number(j + 2)))
      sum, first = sum + number(j + 2), min(first, number(j + 1))
      ttl = max(ttl, math.ceil(number(j + 1) / 1000) - s)
    end
  end
  for j = released_from, released_from + number(i + 2) - 1 do
    local hits
    hits, first, tombstones = drop_lease(key, ARGV[j], call('HGET', key, ARGV[j]), ttl, first, tombstones, math.huge)
    sum = max(sum - hits, 0)
  end
  if summary or sum > 0 or tombstones > 0 then write_held(key, sum, first, ended, ttl, tombstones) end
  return {sum}
end

-- length returns the number of arguments of a counter. Lists come last.
local function length(letter, i)
  if letter == 'f' then return 2 end
  if letter == 'b' then return 8 end
  if letter == 'h' then return 3 + 3 * number(i + 1) + number(i + 2) end
  if letter == 'p' then return 3 + 2 * number(i + 1) + number(i + 2) end
  if letter == 'r' then return 5 + 2 * number(i + 4) end
  return 3 + 3 * number(i + 2)
end

while pos <= #ARGV do
  local letter, key, from = ARGV[pos], KEYS[number(pos + 1)], pos + 2
  pos = from + length(letter, from)
  local ok, state = pcall(ops[letter], key, from)
  if ok and state then
    out[#out + 1] = 1
    for _, v in ipairs(state) do out[#out + 1] = v end
  else
    out[#out + 1] = tostring(type(state) == 'table' and state.err or state or 'ERR FOREIGN')
  end
end
return out
