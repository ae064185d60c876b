-- Acquires a free leadership, or renews it. KEYS is its key. ARGV is the candidate, of at most 100
-- bytes, and the duration in milliseconds; 0 releases the leadership. The reply is the previous
-- leader, '' if there was none.
local has = (redis.call('GET', KEYS[1]) or ''):sub(1, 101)
if has == '' or has == ARGV[1] then
  if ARGV[2] == '0' then redis.call('DEL', KEYS[1]) else redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) end
end
return has
