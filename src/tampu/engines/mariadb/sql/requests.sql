-- In:  $1 tenant, $2 key to go on after, $3 the time or NULL (the server's), $4 at most so many
-- Out: key, digest, until, seq, stamp, id, queue or NULL when the message is gone, whether its window is open
SELECT d.word, d.digest, d.until, d.seq, d.stamp, d.id, u.name,
  d.until > COALESCE($3, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
FROM (SELECT word, digest, until, seq, stamp, id FROM tampu_idempotency FORCE INDEX (PRIMARY)
  WHERE tenant = $1 AND word > $2 ORDER BY word LIMIT $4) AS d
LEFT JOIN tampu_message m FORCE INDEX (PRIMARY) ON m.seq = d.seq
LEFT JOIN tampu_queue u FORCE INDEX (PRIMARY) ON u.q = m.q
ORDER BY d.word
