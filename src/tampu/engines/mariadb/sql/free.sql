-- In:  $1 seqs
-- Out: card, run_at, whether it waits for its group's turn; locked
SELECT m.seq, m.q, h.attempts, m.created DIV 1000 + COALESCE(m.ahead, 0), m.id, m.lane, m.place, m.max_attempts,
  m.expires, m.word IS NOT NULL, h.run_at, h.lane IS NOT NULL
FROM (SELECT * FROM tampu_held FORCE INDEX (PRIMARY) WHERE seq IN ($1) FOR UPDATE) AS h
STRAIGHT_JOIN tampu_message m FORCE INDEX (PRIMARY) ON m.seq = h.seq
