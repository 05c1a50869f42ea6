-- In:  $1 seqs
-- Out: seq, bytes of its body and its result
SELECT m.seq, LENGTH(m.body) + COALESCE(LENGTH(r.body), 0) FROM tampu_message m FORCE INDEX (PRIMARY)
LEFT JOIN tampu_result r FORCE INDEX (PRIMARY) ON r.seq = m.seq WHERE m.seq IN ($1)
