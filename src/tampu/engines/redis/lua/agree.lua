-- agree: is every message of the queue in exactly one index? Counts only, so it costs the same however many there are.
-- needs: base journal moves
-- KEYS  1: tag of the queue
-- ARGV  1: now
-- Returns {messages, places, milliseconds of the last number}
local places = 0
for state = 0, 7 do places = places + call('ZCARD', K .. INDEX[state]) end
return { call('HLEN', K .. 'm'), places, tonumber(call('HGET', K .. 'n', 'ms') or 0) }
