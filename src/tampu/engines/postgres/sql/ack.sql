-- settle: acks of one claim. The DELETE is the fence: whoever gets the row settles it.
-- In:  $1 seqs, $2 lease, $3 q, $4 the time or NULL (the server's, of the transaction), $5 the state's number,
--      $6 the seqs, packed: if that is the whole claim, nobody needs to look at it any more
--      $7 the claim's until, if these are known to be all that is left of it; or NULL
-- Out: seq, attempts, stamp, id, lane of those that were leased so
WITH gone AS (
  DELETE FROM tampu.leased WHERE seq = ANY ($1::int8[]) AND lease = $2::int8 AND q = $3::int8
  RETURNING seq, attempts, stamp, id, lane, until),
put AS (
  INSERT INTO tampu.ended (seq, at, lease, q, attempts, state)
  SELECT seq, coalesce($4::int8, (extract(epoch FROM transaction_timestamp()) * 1000000)::int8),
    $2::int8, $3::int8, attempts, $5::int8 FROM gone),
over AS (
  DELETE FROM tampu.claim
  WHERE until > (SELECT coalesce($7::int8 - 8, min(until) - 1) FROM gone)
    AND until <= (SELECT coalesce($7::int8, min(until)) FROM gone) AND lease = $2::int8
    AND CASE WHEN $7::int8 IS NULL THEN seqs = $6::bytea ELSE (SELECT count(*) FROM gone) = cardinality($1::int8[]) END)
SELECT seq, attempts, stamp, id, lane FROM gone
