-- select_next_due: when the next delay, lease or expiry of this queue is due. Writes nothing.
-- needs: base blocks runs journal moves due_work
-- KEYS  1: tag of the queue
-- ARGV  1: now
-- Returns the time or nil
return next_due()
