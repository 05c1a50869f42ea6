-- Ended messages leave their index.
-- In:  $1 seqs
-- Out: card
WITH gone AS (DELETE FROM tampu.ended WHERE seq = ANY ($1::int8[]) RETURNING seq, attempts)
SELECT m.seq, m.q, g.attempts, m.created / 1000 + coalesce(m.ahead, 0), m.id, m.lane, m.rank, m.max_attempts,
  m.expires, m.key IS NOT NULL
FROM gone g CROSS JOIN LATERAL (SELECT * FROM tampu.message m WHERE m.seq = g.seq OFFSET 0) AS m ORDER BY m.seq
