-- Has a holder have a role if nobody has it, or renews it. KEYS is the role, ARGV the holder, of a hundred bytes at
-- most, and for how many milliseconds; 0 gives it back. The reply is who had it before, '' for nobody.
local has = (redis.call('GET', KEYS[1]) or ''):sub(1, 101)
if has == '' or has == ARGV[1] then
  if ARGV[2] == '0' then redis.call('DEL', KEYS[1]) else redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) end
end
return has
