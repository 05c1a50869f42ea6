-- whole: say that the index is whole, unless something was lost while it was being made.
-- KEYS: 1 the mark, 2 who is making it
-- ARGV: 1 the mark's new value, 2 who we are
-- Returns 1, or 0 when the server has forgotten us (it was emptied meanwhile).
if redis.call('GET', KEYS[2]) ~= ARGV[2] then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
redis.call('DEL', KEYS[2])
return 1
