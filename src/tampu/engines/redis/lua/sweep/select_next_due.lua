-- select_next_due: when the next delay, lease, expiry or check of a unit of this queue is due. Writes nothing.
-- needs: base blocks runs journal moves due_work
-- KEYS  1: tag of the queue
-- ARGV  1: now
-- Returns the time or nil
local at, unit = next_due(), head('intents.at')
return unit and (not at or unit < at) and unit or at
