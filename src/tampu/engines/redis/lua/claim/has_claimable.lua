-- has_claimable: whether a claim may find something in this queue. Writes nothing.
-- needs: base blocks runs journal moves due_work
-- KEYS  1: tag of the queue
-- ARGV  1: now
-- Returns 1 or 0
local first = next_due()
return (call('EXISTS', K .. 'ready') == 1 or (first and first <= now)) and 1 or 0
