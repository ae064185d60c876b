-- The common part of both scripts: times, and reading and writing counters. A value that no counter
-- can have was written by another program: it is read as nil and not changed.
--
-- Doubles are exact below 2^53, so times are pairs of seconds and nanoseconds. ARGV begins with the
-- time, or '' and '' for the server's clock.
local call, floor, min, max, format = redis.call, math.floor, math.min, math.max, string.format
local MOST = 8589934590 -- greatest count of a fixed window
local AHEAD = 3600 -- seconds. State further in the future starts again, since the clock was set back: see limiter/cells.go

local s, n = tonumber(ARGV[1]), tonumber(ARGV[2])
if not s then
  local t = call('TIME')
  s, n = tonumber(t[1]), tonumber(t[2]) * 1000
end

local function later(as, an, bs, bn) return as > bs or as == bs and an > bn end

-- begun_ahead reports whether a counter that started at (bs, bn) starts again.
local function begun_ahead(bs, bn) return later(bs, bn, s + AHEAD, n) end

-- latest returns the latest end, in milliseconds (rounded up), of a permit or a reservation that
-- lasts the given number of seconds and did not start ahead.
local function latest(seconds) return (s + seconds + AHEAD) * 1000 + floor(n / 1e6) + 1 end

local function plus(as, an, bs, bn)
  as, an = as + bs, an + bn
  if an >= 1e9 then return as + 1, an - 1e9 end
  return as, an
end

local function minus(as, an, bs, bn)
  as, an = as - bs, an - bn
  if an < 0 then return as - 1, an + 1e9 end
  return as, an
end

-- times returns q times (ls, ln). It splits ln in two, so that products stay below 2^53.
local function times(q, ls, ln)
  local hi, lo = floor(ln / 32768), ln % 32768
  hi = q * hi
  local whole, rest = floor(hi / 1e9), hi % 1e9
  rest = rest * 32768 + q * lo
  local carry = floor(rest / 1e9)
  return q * ls + whole * 32768 + carry, rest - carry * 1e9
end

-- current returns the number of the current sub-window, each of which lasts (ls, ln).
local function current(ls, ln)
  local at = floor((s + n / 1e9) / (ls + ln / 1e9))
  local ps, pn = times(at, ls, ln)
  if later(ps, pn, s, n) then return at - 1 end
  ps, pn = times(at + 1, ls, ln)
  if later(ps, pn, s, n) then return at end
  return at + 1
end

-- stamp returns the time of an element of a log, 0 and 0 if it is malformed. The time is capped to
-- what reply.go accepts.
local function stamp(text)
  if #text > 19 or not text:find('^%d+$') then return 0, 0 end
  return min(tonumber(text:sub(1, -10)) or 0, 9223372035), tonumber(text:sub(-9))
end

-- Creating a closure costs more than calling one. So the functions of an algorithm are created when
-- its first counter is read.

-- fixed returns the functions that read and write fixed windows.
local function fixed()
  -- read_count returns the count of a fixed window. It may be above MOST, by INCRBY, or negative,
  -- by another program.
  local function read_count(value)
    if not value then return 0 end
    if #value <= 18 and (value == '0' or value:find('^-?[1-9]%d*$')) then return tonumber(value) end
  end

  -- write_count changes a count from was to is. A full counter without an expiry gets one.
  local function write_count(key, value, was, is, expires, full)
    if not value then
      if is > 0 then call('SET', key, format('%.0f', is), 'EXAT', expires) end
      return
    end
    if is ~= was then call('INCRBY', key, format('%.0f', is - was)) end
    if full and call('TTL', key) == -1 then call('EXPIREAT', key, expires) end
  end

  return read_count, write_count
end

-- bucket returns the functions that read and write buckets.
local function bucket()
  -- read_tat returns the TAT of a bucket, 0 and 0 if it is empty or starts again. (hs, hn) is its
  -- highest level.
  local function read_tat(value, hs, hn)
    if not value then return 0, 0 end
    if #value > 24 or not value:find('^%d+%.?%d*$') then return end
    local dot = value:find('.', 1, true) or #value + 1
    local ts, tn = tonumber(value:sub(1, dot - 10)), tonumber(value:sub(dot - 9))
    if not ts or not tn then return end
    if begun_ahead(minus(ts, tn, hs, hn)) then return 0, 0 end
    return ts, tn
  end

  local function write_tat(key, ts, tn)
    local layout = tn == floor(tn) and '%.0f%09.0f' or '%.0f%014.4f'
    call('SET', key, format(layout, ts, tn), 'EXAT', ts + 2)
  end

  return read_tat, write_tat
end

-- ring returns the functions that read, advance and write sliding windows.
local function ring()
  local function layout(k) return '<d' .. ('I4'):rep(k + 1) end

  -- present returns the number of the current sub-window. (ls, ln) is its length; or ls lists
  -- windows of a calendar, with k sub-windows each, as call.go encodes them. Then present also
  -- returns that list.
  local function present(k, ls, ln)
    if tonumber(ls) then return current(tonumber(ls), ln) end
    local w, i = {}, 2
    for word in ls:gmatch('%S+') do w[#w + 1] = tonumber(word) end
    while i < #w - 1 and w[i + 1] <= s do i = i + 1 end
    local part = floor(((s - w[i] + 1) * k - 1) / (w[i + 1] - w[i]))
    return (w[1] + i - 2) * k + max(0, min(part, k - 1)), w
  end

  -- start returns when sub-window h begins. w lists windows of a calendar, or is nil. A sub-window
  -- after them never begins.
  local function start(h, k, ls, ln, w)
    if not w then return times(h, tonumber(ls), ln) end
    local i = floor(h / k) - w[1] + 2
    if i >= #w then return math.huge, 0 end
    return w[i] + floor(h % k * (w[i + 1] - w[i]) / k), 0
  end

  -- read_ring returns the number of the current sub-window and, unless the stored hits have
  -- expired, the number of the newest stored one and the counts, which begin at index 2 of the
  -- table.
  local function read_ring(raw, k, ls, ln)
    local now, windows = present(k, ls, ln)
    if not raw then return now end
    if #raw ~= 12 + 4 * k then return end
    local counts = {struct.unpack(layout(k), raw)}
    local h = counts[1]
    if h ~= floor(h) or h < 0 or h > 9007199254740992 then return end
    if now - h > k or h > now and begun_ahead(start(h, k, ls, ln, windows)) then return now end
    return now, h, counts
  end

  -- advance returns the counts of the ring advanced to the sub-window newest. They begin at index 1
  -- of the table.
  local function advance(k, h, counts, newest)
    local t = {}
    for i = newest - k, newest do
      t[i % (k + 1) + 1] = h and i <= h and i >= h - k and counts[i % (k + 1) + 2] or 0
    end
    return t
  end

  local function write_ring(key, k, t, newest, now, span)
    local text = struct.pack(layout(k), newest, unpack(t))
    call('SET', key, text, 'EXAT', s + span + (newest > now and AHEAD or 0))
    return text
  end

  return read_ring, advance, write_ring
end

-- log returns the functions that read the newest hit of a log, and count its expired hits.
local function log()
  -- read_newest returns the time of the newest hit of a log that is not empty, nil if the log
  -- starts again, and whether the element is valid.
  local function read_newest(key)
    local last = call('LINDEX', key, -1)
    if #last < 10 or #last > 19 or not last:find('^%d+$') then return nil, nil, false end
    local ls, ln = stamp(last)
    if begun_ahead(ls, ln) then return nil, nil, true end
    return ls, ln, true
  end

  -- expired returns how many hits of a log have expired at (es, en). It is usually few, so the
  -- search begins at the oldest.
  local function expired(key, len, window, es, en)
    local function counts(i)
      local is, it = stamp(call('LINDEX', key, i))
      return later(is, it, es - window, en)
    end
    local lo, hi, step = -1, len, 1 -- lo is expired, hi is not
    while lo + step < hi do
      if counts(lo + step) then
        hi = lo + step
        break
      end
      lo, step = lo + step, step * 2
    end
    while lo + 1 < hi do
      local mid = floor((lo + hi) / 2)
      if counts(mid) then hi = mid else lo = mid end
    end
    return hi
  end

  return read_newest, expired
end

-- lease_of returns the lease with a nonce. Its seal identifies the counter: see lease.go.
local function lease_of(nonce, seal)
  local x = nonce + seal
  return format('%.0f', 536870912 + nonce * 256 + floor(x * x / 8192) % 256)
end

-- reservations returns the functions that read and write the reservations of a counter. The key is
-- a hash. Each lease maps to its end, in milliseconds, and its hits. The field s has the sum of all
-- hits, the earliest end and, if not 0, the number of tombstones. A tombstone, a lease with 0 hits,
-- was granted by a replica without the store and has been released, or was released by a reset.
local function reservations()
  local now = s * 1000 + floor(n / 1e6)

  -- pair parses two numbers that a double represents exactly. It returns nothing for any other
  -- value.
  local function pair(value)
    local a, b = (value or ''):match('^(%d+) (%d+)$')
    if a and #a <= 16 and #b <= 16 then return tonumber(a), tonumber(b) end
  end

  local function text(a, b) return format('%.0f %.0f', a, b) end

  -- read_held returns the sum of the held hits, the number of reservations, the earliest end, the
  -- expired leases, and the number of tombstones. many is the number of leases, and longest the
  -- longest duration of a lease in seconds. Leases that started ahead are found when the earliest
  -- one ends.
  local function read_held(key, summary, many, longest)
    local sum, first = pair(summary:match('^(%d+ %d+) ?%d*$'))
    if not sum then return end
    local tombstones, ended = tonumber(summary:match('^%d+ %d+ (%d+)$') or 0), {}
    if first > now and (sum == 0 or first <= latest(longest)) then return sum, many - tombstones, first, ended, tombstones end
    local all = call('HGETALL', key)
    sum, many, first, tombstones = 0, 0, 9007199254740992, 0
    for i = 1, #all, 2 do
      local ends, hits = pair(all[i + 1])
      if all[i] == 's' then
      elseif not ends or ends <= now or hits > 0 and ends > latest(longest) then
        ended[#ended + 1] = all[i]
      elseif hits == 0 then
        tombstones, first = tombstones + 1, min(first, ends)
      else
        sum, many, first = sum + hits, many + 1, min(first, ends)
      end
    end
    return sum, many, first, ended, tombstones
  end

  -- tombstone_end rounds the end of a tombstone to few moments, because all leases are read at each.
  local function tombstone_end(ends, ttl) return math.ceil(ends / (ttl * 125)) * ttl * 125 end

  -- drop_lease removes a lease with the given value, which may be nil. If a replica granted the
  -- lease, and so may still report it as held, drop_lease writes a tombstone. drop_lease returns the
  -- hits that were held, the earliest end, the number of tombstones, and whether the lease was one.
  local function drop_lease(key, lease, value, ttl, first, tombstones, longest)
    local ends, hits = pair(value or '')
    if value and (not ends or ends <= now or hits == 0 or ends > latest(longest)) then
      return 0, first, tombstones, hits == 0 and ends > now
    end
    if value then call('HDEL', key, lease) end
    local by_replica = floor((lease - 536870912) / 256) % 2 == 1 -- its nonce is odd
    if by_replica and tombstones < 1024 then
      ends = tombstone_end(now + ttl * 1000, ttl)
      call('HSET', key, lease, text(ends, 0))
      first, tombstones = min(first, ends), tombstones + 1
    end
    return hits or 0, first, tombstones
  end

  -- reset_held replaces the leases by tombstones: at their ends, no cost is charged. It returns the
  -- earliest end, and the number of tombstones.
  local function reset_held(key, ttl)
    local all, kept, first = call('HGETALL', key), {}, 9007199254740992
    for i = 1, #all, 2 do
      local ends = pair(all[i + 1])
      if all[i] ~= 's' and ends and ends > now and #kept < 2048 then
        ends = tombstone_end(ends, ttl)
        first, kept[#kept + 1], kept[#kept + 2] = min(first, ends), all[i], text(ends, 0)
      end
    end
    call('DEL', key)
    if #kept > 0 then call('HSET', key, unpack(kept)) end
    return first, #kept / 2
  end

  -- write_held extends the expiry of the key to ttl seconds from now. It never shortens the expiry:
  -- earlier reservations may have a longer ttl.
  local function write_held(key, sum, first, ended, ttl, tombstones)
    call('HSET', key, 's', text(sum, first) .. (tombstones > 0 and ' ' .. tombstones or ''))
    for _, lease in ipairs(ended) do call('HDEL', key, lease) end
    if call('TTL', key) < ttl + 2 then call('EXPIREAT', key, s + ttl + 2) end
  end

  return read_held, write_held, drop_lease, text, reset_held
end

-- permits returns the functions that read, acquire, release and write the permits of a concurrency
-- limit. The key is a sorted set: its members are leases, and the scores are their expiries in
-- milliseconds. A negative score is a tombstone: a replica granted the lease without the store, and
-- it has been released. See sync.lua.
local function permits()
  local now = s * 1000 + floor(n / 1e6)

  local function text(number) return format('%.0f', number) end

  local function ends(window) return (s + window) * 1000 + math.ceil(n / 1e6) end

  local function is_lease(member) return #member == 9 and member:find('^[5-8]%d*$') ~= nil end

  local function count(key, window) return call('ZCOUNT', key, '(' .. text(now), text(latest(window))) end

  -- read_permits returns the number of held permits, and whether some started ahead. newest is the
  -- latest expiry.
  local function read_permits(key, newest, window)
    if newest <= now then return 0, false end
    return count(key, window), newest > latest(window)
  end

  -- acquire acquires a permit under a lease that is not in use, and returns the lease.
  local function acquire(key, nonce, seal, window)
    while true do
      local lease = lease_of(nonce, seal)
      if math.abs(tonumber(call('ZSCORE', key, lease) or 0)) <= now then
        call('ZADD', key, ends(window), lease)
        return tonumber(lease)
      end
      nonce = (nonce + 2) % 1048576
    end
  end

  -- record_lease records a lease that a replica granted, unless it has been released already.
  local function record_lease(key, lease, ends)
    if ends > now and tonumber(call('ZSCORE', key, lease) or 0) >= 0 then call('ZADD', key, ends, lease) end
  end

  -- release releases a lease, and reports whether it was held. The tombstone of a replica's lease
  -- keeps the replica from acquiring it later, or again after a lost reply.
  local function release(key, lease, window)
    local score = tonumber(call('ZSCORE', key, text(lease)) or 0)
    local held = score > now and score <= latest(window)
    if held then call('ZREM', key, text(lease)) end
    local by_replica = floor((lease - 536870912) / 256) % 2 == 1 -- its nonce is odd
    if by_replica and (held or score == 0) then
      local tombstones = call('ZCOUNT', key, '-inf', '(0')
      if tombstones >= 4096 and call('ZREMRANGEBYSCORE', key, '-inf', '(' .. text(-latest(window))) == 0 then -- none started ahead
        call('ZREMRANGEBYRANK', key, tombstones - 1, tombstones - 1) -- the oldest of them
      end
      call('ZADD', key, -ends(window), text(lease))
    end
    return held
  end

  -- write_permits removes expired permits and, if ahead is set, permits that started ahead. It sets
  -- the expiry of the key.
  local function write_permits(key, window, ahead)
    call('ZREMRANGEBYSCORE', key, -now, now)
    if ahead then call('ZREMRANGEBYSCORE', key, '(' .. text(latest(window)), '+inf') end
    call('EXPIREAT', key, s + window + 2)
  end

  return read_permits, is_lease, acquire, release, write_permits, record_lease, count
end
