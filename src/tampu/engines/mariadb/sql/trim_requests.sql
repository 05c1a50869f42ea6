-- In:  $1 the time, $2 at most so many
-- Out: tenant, idempotency key past its window, locked
SELECT tenant, word FROM tampu_idempotency FORCE INDEX (until) WHERE until <= $1 ORDER BY until LIMIT $2
FOR UPDATE SKIP LOCKED
