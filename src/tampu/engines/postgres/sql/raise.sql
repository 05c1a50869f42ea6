-- replay: dead messages leave their index. An expiry that has passed meanwhile does not count any more.
-- In:  $1 seqs, $2 the time
-- Out: card, attempts 0
WITH gone AS (DELETE FROM tampu.dead WHERE seq = ANY ($1::int8[]) RETURNING seq),
late AS (
  UPDATE tampu.message SET expires = NULL WHERE seq = ANY (ARRAY(SELECT seq FROM gone)) AND expires <= $2::int8)
SELECT m.seq, m.q, 0, m.created / 1000 + coalesce(m.ahead, 0), m.id, m.lane, m.rank, m.max_attempts,
  CASE WHEN m.expires > $2::int8 THEN m.expires END, m.key IS NOT NULL
FROM gone g CROSS JOIN LATERAL (SELECT * FROM tampu.message m WHERE m.seq = g.seq OFFSET 0) AS m
