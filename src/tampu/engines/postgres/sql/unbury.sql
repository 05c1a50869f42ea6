-- purge: the oldest dead messages of a queue leave their index.
-- In:  $1 q, $2 at most so many
-- Out: card
WITH gone AS (
  DELETE FROM tampu.dead WHERE seq = ANY (ARRAY(
    SELECT seq FROM tampu.dead WHERE q = $1::int8 ORDER BY q, at, seq LIMIT $2::int8 FOR UPDATE SKIP LOCKED))
  RETURNING seq, attempts)
SELECT m.seq, m.q, g.attempts, m.created / 1000 + coalesce(m.ahead, 0), m.id, m.lane, m.rank, m.max_attempts,
  m.expires, m.key IS NOT NULL
FROM gone g CROSS JOIN LATERAL (SELECT * FROM tampu.message m WHERE m.seq = g.seq OFFSET 0) AS m ORDER BY m.seq
