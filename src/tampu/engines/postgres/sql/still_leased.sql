-- sweep: what is left of claims, locked, so that an extension comes before or after. What is locked by others is left.
-- In:  arrays by growing seq: $1 seq, $2 lease
-- Out: card, lease, worker, whether a cancel was asked for, until, the pace of its group
WITH left_over AS MATERIALIZED (
  SELECT l.* FROM unnest($1::int8[], $2::int8[]) AS i(seq, lease) CROSS JOIN LATERAL (
    SELECT * FROM tampu.leased l WHERE l.seq = i.seq AND l.lease = i.lease OFFSET 0 FOR UPDATE SKIP LOCKED) AS l)
SELECT m.seq, m.q, l.attempts, l.stamp, m.id, m.lane, m.rank, m.max_attempts, m.expires, m.key IS NOT NULL,
  l.lease, l.worker, l.cancel, l.until,
  CASE WHEN m.lane IS NOT NULL THEN (SELECT u.pace FROM tampu.queue u WHERE u.q = m.q) END
FROM left_over l CROSS JOIN LATERAL (SELECT * FROM tampu.message m WHERE m.seq = l.seq OFFSET 0) AS m
