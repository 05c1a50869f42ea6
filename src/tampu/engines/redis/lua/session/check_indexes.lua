-- check_indexes: whether every message of the queue is in exactly one index. Counts only: of the indexes, and of the blocks.
-- needs: base blocks runs journal moves
-- KEYS  1: tag of the queue
-- ARGV  1: now
-- Returns {messages, places, milliseconds of the last number}
local places = ready_count()
for state = 1, 7 do places = places + call('ZCARD', K .. INDEX[state]) end
local messages = call('HLEN', K .. 'm')
for _, block in ipairs(call('ZRANGE', K .. 'blocks', 0, -1)) do messages = messages + call('HLEN', K .. 'm:' .. block) end
return { messages, places, tonumber(call('HGET', K .. 'n', 'ms') or 0) }
