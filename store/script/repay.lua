-- repay.lua charges counters with what a replica admitted while it was without the store: see owed.go.
-- KEYS are the counters. ARGV is the time, seconds and nanoseconds, or '' and '' for the server's own;
-- then for each counter the letter of its algorithm, its number, and its numbers.
--
-- The reply is the time, 0, and for each counter 1 and its state as decide.lua tells it, of a bucket also the
-- TAT that it had, and the one that it would have without a highest level; or, of one that cannot be charged, why.
local ops, pos = {}, 3

local out = {s, n, 0}

local function number(i) return tonumber(ARGV[i]) end

local function stamp(text) return tonumber(text:sub(1, -10)), tonumber(text:sub(-9)) end

-- A fixed window: hits, and when the key expires.
ops.f = function(key, i)
  local value, hits, expires = call('GET', key), number(i), ARGV[i + 1]
  local was = value and min(tonumber(value), MOST) or 0
  local is = min(was + hits, MOST)
  if not value then
    call('SET', key, format('%.0f', is), 'EXAT', expires)
  else
    call('INCRBY', key, format('%.0f', is - was))
    if call('TTL', key) == -1 then call('EXPIREAT', key, expires) end
  end
  return {is}
end

-- A bucket: what the hits cost, the TAT that they led to, and the highest level. Hits that came while
-- the bucket was not empty add their cost to its TAT; in an empty one they led to theirs.
ops.b = function(key, i)
  local cs, cn, ts, tn = number(i), number(i + 1), number(i + 2), number(i + 3)
  local value, xs, xn = call('GET', key), 0, 0
  if value then
    local dot = value:find('.', 1, true) or #value + 1
    local as, an = tonumber(value:sub(1, dot - 10)), tonumber(value:sub(dot - 9))
    local ls, ln = minus(as, an, s, n)
    if not later(ls, ln, 1499825504, 606846976) then xs, xn = as, an end -- else the clock was set back
  end
  local as, an = plus(xs, xn, cs, cn)
  if later(ts, tn, as, an) then as, an = ts, tn end
  local us, un, ws, wn = as, an, xs, xn
  local ms, mn = plus(s, n, number(i + 4), number(i + 5))
  if later(as, an, ms, mn) then as, an = ms, mn end
  if later(as, an, xs, xn) and later(as, an, s, n) then
    local layout = an == floor(an) and '%.0f%09.0f' or '%.0f%014.4f'
    call('SET', key, format(layout, as, an), 'EXAT', as + 2)
  else
    as, an = xs, xn
  end
  if not later(as, an, s, n) then as, an = 0, 0 end
  return {as, an * 16, ws, wn * 16, us, un * 16}
end

-- A sliding window: the length of its sub-windows, how many count beside the newest, how long the key
-- lives, and the sub-windows that were hit with their hits, oldest first.
ops.r = function(key, i)
  local ls, ln, k, span, many = number(i), number(i + 1), number(i + 2), number(i + 3), number(i + 4)
  local now = current(ls, ln)
  local raw, layout = call('GET', key), '<d' .. ('I4'):rep(k + 1)
  local h, counts = nil, nil
  if raw then
    counts = {struct.unpack(layout, raw)}
    h = counts[1]
    local ps, pn = times(h, ls, ln)
    if h > now and later(ps, pn, s + LATE, n) or now - h > k then h = nil end
  end
  local newest = max(now, h or now, number(i + 3 + 2 * many))
  local t, any = {}, false
  for x = newest - k, newest do
    local had = h and x <= h and x >= h - k and counts[x % (k + 1) + 2] or 0
    t[x % (k + 1) + 1] = had
  end
  for j = i + 5, i + 3 + 2 * many, 2 do
    local x = number(j)
    if x >= newest - k then
      local at = x % (k + 1) + 1
      t[at], any = min(t[at] + number(j + 1), 4294967295), true
    end
  end
  if not any then return {raw or ''} end
  local text = struct.pack(layout, newest, unpack(t))
  call('SET', key, text, 'EXAT', s + span + (newest > now and LATE or 0))
  return {text}
end

-- A log: its limit and window, and times of hits with how many, oldest first. They count from the
-- newest hit in the store on if that is later, so that its times stay sorted.
ops.l = function(key, i)
  local limit, window, many = number(i), number(i + 1), number(i + 2)
  local len, ns, nn = call('LLEN', key), 0, 0
  if len > 0 then
    ns, nn = stamp(call('LINDEX', key, -1))
    if later(ns, nn, s + window + LATE, n) then -- the clock was set back
      call('DEL', key)
      len, ns, nn = 0, 0, 0
    end
  end
  local lo, hi = -1, len -- lo does not count, hi does
  while lo + 1 < hi do
    local mid = floor((lo + hi) / 2)
    local ms, mn = stamp(call('LINDEX', key, mid))
    if later(ms + window, mn, s, n) then hi = mid else lo = mid end
  end
  local total, push = len - hi, {}
  for j = i + 3, i + 3 * many, 3 do
    local rs, rn = number(j), number(j + 1)
    if later(rs + window, rn, s, n) then
      if later(rs, rn, ns, nn) then ns, nn = rs, rn end
      local text = format('%.0f%09d', ns, nn)
      for _ = 1, number(j + 2) do push[#push + 1] = text end
    end
  end
  total = total + #push
  if #push > 0 then
    call('RPUSH', key, unpack(push))
    call('LTRIM', key, -min(total, limit), -1)
    call('EXPIREAT', key, ns + window + 2)
  end
  return {total, ns, nn}
end

-- The arguments of a counter that has a list of them end with it.
local function length(letter, i)
  if letter == 'f' then return 2 end
  if letter == 'b' then return 6 end
  if letter == 'r' then return 5 + 2 * number(i + 4) end
  return 3 + 3 * number(i + 2)
end

while pos <= #ARGV do
  local letter, key, from = ARGV[pos], KEYS[number(pos + 1)], pos + 2
  pos = from + length(letter, from)
  local ok, state = pcall(ops[letter], key, from)
  if ok then
    out[#out + 1] = 1
    for _, v in ipairs(state) do out[#out + 1] = v end
  else
    out[#out + 1] = tostring(type(state) == 'table' and state.err or state)
  end
end
return out
