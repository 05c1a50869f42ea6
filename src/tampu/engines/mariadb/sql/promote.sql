-- sweep: delays that are over, locked.
-- In:  $1 the time, $2 at most so many
-- Out: card, lease, run_at
SELECT m.seq, m.q, d.attempts, m.created DIV 1000 + COALESCE(m.ahead, 0), m.id, m.lane, m.place, m.max_attempts,
  m.expires, m.word IS NOT NULL, d.lease, d.run_at
FROM (SELECT * FROM tampu_delayed FORCE INDEX (due) WHERE run_at <= $1 ORDER BY run_at, seq LIMIT $2
  FOR UPDATE SKIP LOCKED) AS d
STRAIGHT_JOIN tampu_message m FORCE INDEX (PRIMARY) ON m.seq = d.seq
