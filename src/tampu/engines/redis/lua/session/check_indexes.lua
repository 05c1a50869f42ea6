-- check_indexes: count the messages and the index entries of the queue, which must be equal.
-- needs: base blocks runs journal moves
-- KEYS  1: tag of the queue
-- ARGV  1: now
-- Returns {messages, index entries, milliseconds of the last number}
local indexed = ready_count()
for state = 1, 7 do indexed = indexed + call('ZCARD', K .. INDEX[state]) end
local messages = call('HLEN', K .. 'm')
for _, block in ipairs(call('ZRANGE', K .. 'blocks', 0, -1)) do messages = messages + call('HLEN', K .. 'm:' .. block) end
return { messages, indexed, tonumber(call('HGET', K .. 'n', 'ms') or 0) }
