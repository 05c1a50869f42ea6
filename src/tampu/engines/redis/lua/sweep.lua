-- sweep: promote what is due, reap leases that ran out, expire what is past its time.
-- needs: base journal moves sweeping
-- KEYS  1: tag of the queue
-- ARGV  1: now   2: most of each
-- Returns {woken, due, how many moved, when the next thing is due}
local moved = sweep(tonumber(ARGV[2]))
finish()
return { woken, due, moved, next_due() }
