-- offer: take the first places of a queue out of the index, if the index is whole.
-- KEYS: 1 the mark that says so, 2 the queue's places
-- ARGV: 1 the mark as the caller knows it, 2 how many
-- Returns the places in their order; none when there are fewer than asked for; nil when the mark is another one.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return nil end
local wanted = tonumber(ARGV[2])
local found = redis.call('ZRANGE', KEYS[2], 0, wanted - 1)
if #found < wanted then return {} end
redis.call('ZREMRANGEBYRANK', KEYS[2], 0, wanted - 1)
return found
