-- In:  $1 seqs
-- Out: card, with 0 for the attempts
SELECT m.seq, m.q, 0, m.created DIV 1000 + COALESCE(m.ahead, 0), m.id, m.lane, m.place, m.max_attempts,
  m.expires, m.word IS NOT NULL
FROM tampu_message m FORCE INDEX (PRIMARY) WHERE m.seq IN ($1)
