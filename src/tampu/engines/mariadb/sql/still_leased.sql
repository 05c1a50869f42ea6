-- sweep: what is left of claims, locked, so that an extension comes before or after. What is locked by others is left.
-- In:  columns: $1 seq, $2 lease
-- Out: card, lease, worker, whether a cancel was asked for, until, the pace of its group
SELECT m.seq, m.q, l.attempts, m.created DIV 1000 + COALESCE(m.ahead, 0), m.id, m.lane, m.place, m.max_attempts,
  m.expires, m.word IS NOT NULL, l.lease, l.worker, l.cancel, l.until,
  CASE WHEN m.lane IS NOT NULL THEN (SELECT u.pace FROM tampu_queue u WHERE u.q = m.q) END
FROM (SELECT * FROM tampu_leased FORCE INDEX (PRIMARY) WHERE seq IN ($1) AND (seq, lease) IN ({($1, $2)})
  FOR UPDATE SKIP LOCKED) AS l
STRAIGHT_JOIN tampu_message m FORCE INDEX (PRIMARY) ON m.seq = l.seq
