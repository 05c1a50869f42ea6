-- select_stats: how many messages are in each index, and when the oldest ready one was published. Writes nothing.
-- needs: base blocks runs journal moves
-- KEYS  1: tag of the queue
-- ARGV  1: now
-- Returns {now, created or nil, ready, delayed, leased, held, done, dead, cancelled, expired}
local counts = { now, false }
counts[3] = ready_count()
for state = 1, 7 do counts[3 + state] = call('ZCARD', K .. INDEX[state]) end
local first = call('ZRANGEBYLEX', K .. 'ready', '[' .. FIFO, '[' .. FIFO .. '~', 'LIMIT', 0, 1)[1]
local oldest = call('ZRANGE', K .. 'aged', 0, 0)[1]
if first and #first < 48 and (not oldest or first:sub(17, 32) < oldest) then oldest = first:sub(17, 32) end
if oldest then counts[2] = (details(row_of(oldest))) end
return counts
