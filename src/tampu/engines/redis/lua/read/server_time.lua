-- server_time: the server's time. Writes nothing.
-- needs: base
-- KEYS  1: tag of the queue
-- ARGV  1: now
-- Returns now
return now
