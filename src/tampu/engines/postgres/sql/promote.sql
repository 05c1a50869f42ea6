-- sweep: delays that are over, locked. What somebody else has locked is left.
-- In:  $1 the time, $2 at most so many
-- Out: card, lease, in the order they fell due
WITH due AS MATERIALIZED (
  SELECT d.* FROM tampu.delayed d WHERE d.run_at <= $1::int8 ORDER BY d.run_at, d.seq
  LIMIT $2::int8 FOR UPDATE SKIP LOCKED)
SELECT m.seq, m.q, d.attempts, m.created / 1000 + coalesce(m.ahead, 0), m.id, m.lane, m.rank, m.max_attempts,
  m.expires, m.key IS NOT NULL, d.lease
FROM due d CROSS JOIN LATERAL (SELECT * FROM tampu.message m WHERE m.seq = d.seq OFFSET 0) AS m
ORDER BY d.run_at, d.seq
