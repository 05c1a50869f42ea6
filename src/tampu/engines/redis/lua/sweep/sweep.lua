-- sweep: promote delayed messages that are due, reap expired leases, expire messages.
-- needs: base blocks runs journal moves due_work intents
-- KEYS  1: tag of the queue
-- ARGV  1: now   2: limit of each kind
-- Returns {newly_ready, due, counts (see sweep in due_work.lua), next due time, {name, calls, …} of units to complete}
local moved = sweep(tonumber(ARGV[2]))
finish()
local intents = take_intents(tonumber(ARGV[2]))
local at, unit = next_due(), head('intents.at')
return { newly_ready, due, moved, unit and (not at or unit < at) and unit or at, intents }
