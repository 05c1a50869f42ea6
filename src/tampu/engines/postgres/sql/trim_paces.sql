-- In:  $1 the time, $2 at most so many
-- Out: groups that have saved up all their tokens, forgotten
DELETE FROM tampu.pace WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM tampu.pace WHERE spent <= $1::int8 ORDER BY spent LIMIT $2::int8 FOR UPDATE SKIP LOCKED))
RETURNING lane
