-- In:  $1 seqs
-- Out: card, and rank and pos in `ready` if it is there and not plain
SELECT m.seq, m.q, 0, m.created DIV 1000 + COALESCE(m.ahead, 0), m.id, m.lane, m.place, m.max_attempts,
  m.expires, m.word IS NOT NULL, p.place, p.pos
FROM tampu_message m FORCE INDEX (PRIMARY)
LEFT JOIN tampu_placed p FORCE INDEX (PRIMARY) ON p.q = m.q AND p.seq = m.seq WHERE m.seq IN ($1)
