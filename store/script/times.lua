-- Stands before decide.lua and repay.lua: what both know of numbers and times.
--
-- Doubles are exact below 2^53, so times are pairs of seconds and nanoseconds. ARGV begins with the time,
-- or '' and '' for the server's own.
local call, floor, min, max, format = redis.call, math.floor, math.min, math.max, string.format
local MOST = 8589934590 -- a fixed window's greatest count
local LATE = 31536000 -- seconds: beyond a year the clock was set back

local s, n = tonumber(ARGV[1]), tonumber(ARGV[2])
if not s then
  local t = call('TIME')
  s, n = tonumber(t[1]), tonumber(t[2]) * 1000
end

local function later(as, an, bs, bn) return as > bs or as == bs and an > bn end

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

-- times returns a number of spans of (ls, ln): products stay below 2^53 because ln is cut in two.
local function times(q, ls, ln)
  local hi, lo = floor(ln / 32768), ln % 32768
  hi = q * hi
  local whole, rest = floor(hi / 1e9), hi % 1e9
  rest = rest * 32768 + q * lo
  local carry = floor(rest / 1e9)
  return q * ls + whole * 32768 + carry, rest - carry * 1e9
end

-- current returns the number of the sub-window of (ls, ln) that the time is in.
local function current(ls, ln)
  local at = floor((s + n / 1e9) / (ls + ln / 1e9))
  local ps, pn = times(at, ls, ln)
  if later(ps, pn, s, n) then return at - 1 end
  ps, pn = times(at + 1, ls, ln)
  if later(ps, pn, s, n) then return at end
  return at + 1
end
