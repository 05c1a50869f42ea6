-- due: when the next delay, lease or expiry of this queue falls due. Writes nothing.
-- needs: base blocks runs journal moves sweeping
-- KEYS  1: tag of the queue
-- ARGV  1: now
-- Returns the time or nil
return next_due()
