-- sweep: promote what is due, reap leases that ran out, expire messages.
-- needs: base blocks runs journal moves due_work intents
-- KEYS  1: tag of the queue
-- ARGV  1: now   2: limit of each kind
-- Returns {woken, due, what was moved (see sweep), when the next thing is due, {name, calls, …} of units to be completed}
local moved = sweep(tonumber(ARGV[2]))
finish()
local intents = take_intents(tonumber(ARGV[2]))
local at, unit = next_due(), head('intents.at')
return { woken, due, moved, unit and (not at or unit < at) and unit or at, intents }
