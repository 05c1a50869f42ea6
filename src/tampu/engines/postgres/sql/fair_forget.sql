-- Groups that stand behind the round that is being delivered begin anew with it: nothing to remember.
-- In:  $1 q, $2 the round, $3 at most so many
DELETE FROM tampu.fair WHERE ctid = ANY (ARRAY(
  SELECT f.ctid FROM tampu.fair f WHERE f.q = $1::int8 AND f.last < $2::int8 ORDER BY f.q, f.last LIMIT $3::int8
  FOR UPDATE SKIP LOCKED))
