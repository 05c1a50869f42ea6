-- In:  $1 the time, $2 at most so many
-- Out: seq of each result past its time, removed
DELETE FROM tampu.result WHERE seq = ANY (ARRAY(
  SELECT seq FROM tampu.result WHERE until <= $1::int8 ORDER BY until LIMIT $2::int8 FOR UPDATE SKIP LOCKED))
RETURNING seq
