-- whole: mark the index as complete after a rebuild.
-- KEYS: 1 the mark, 2 the lock of the process that rebuilds it
-- ARGV: 1 the new mark, 2 the caller's value of the lock
-- Returns 1, or 0 if the lock is gone: it expired, or Redis was emptied meanwhile.
if redis.call('GET', KEYS[2]) ~= ARGV[2] then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
redis.call('DEL', KEYS[2])
return 1
