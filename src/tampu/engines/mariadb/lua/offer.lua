-- offer: take the first places of a queue out of the index, if the index is complete.
-- KEYS: 1 the mark of a complete index, 2 the sorted set of the queue's places
-- ARGV: 1 the mark that the caller knows, 2 how many places
-- Returns the places in order; an empty list if there are fewer than wanted; nil if the mark differs.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return nil end
local wanted = tonumber(ARGV[2])
local found = redis.call('ZRANGE', KEYS[2], 0, wanted - 1)
if #found < wanted then return {} end
redis.call('ZREMRANGEBYRANK', KEYS[2], 0, wanted - 1)
return found
