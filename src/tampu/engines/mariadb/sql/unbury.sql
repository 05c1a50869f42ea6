-- purge: the oldest dead messages of a queue, locked.
-- In:  $1 q, $2 at most so many
-- Out: seq, attempts
SELECT seq, attempts FROM tampu_dead FORCE INDEX (of_queue) WHERE q = $1 ORDER BY at, seq LIMIT $2
FOR UPDATE SKIP LOCKED
