-- What else another store needs of messages, besides `load`.
-- In:  $1 seqs, $2 the time or NULL (the server's)
-- Out: seq, rank, lane, whether it waits for its group's turn, whether its key stands for it, result, until when
SELECT m.seq, m.place, m.lane, h.lane IS NOT NULL, k.seq IS NOT NULL, r.body, r.until
FROM tampu_message m FORCE INDEX (PRIMARY)
LEFT JOIN tampu_held h FORCE INDEX (PRIMARY) ON h.seq = m.seq
LEFT JOIN tampu_key k FORCE INDEX (PRIMARY) ON k.q = m.q AND k.word = m.word AND k.seq = m.seq
LEFT JOIN tampu_result r FORCE INDEX (PRIMARY) ON r.seq = m.seq
  AND r.until > COALESCE($2, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
WHERE m.seq IN ($1)
