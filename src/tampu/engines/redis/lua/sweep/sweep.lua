-- sweep: promote what is due, reap leases that ran out, expire messages.
-- needs: base blocks runs journal moves due_work
-- KEYS  1: tag of the queue
-- ARGV  1: now   2: limit of each kind
-- Returns {woken, due, what was moved (see sweep), when the next thing is due}
local moved = sweep(tonumber(ARGV[2]))
finish()
return { woken, due, moved, next_due() }
