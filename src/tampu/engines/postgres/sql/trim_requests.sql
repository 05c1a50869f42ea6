-- In:  $1 the time, $2 at most so many
-- Out: idempotency keys past their window, removed
DELETE FROM tampu.idempotency WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM tampu.idempotency WHERE until <= $1::int8 ORDER BY until LIMIT $2::int8 FOR UPDATE SKIP LOCKED))
RETURNING key
