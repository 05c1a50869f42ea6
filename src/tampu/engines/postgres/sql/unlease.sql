-- settle: leases that end. Locking the row is the fence: whoever gets it settles it.
-- (By seq, not by ctid: of a row that was extended while we waited, our snapshot knows only the old place.)
-- In:  arrays, by growing seq: $1 seq, $2 lease, $3 q
-- Out: card, lease, worker, whether a cancel was asked for, the pace of its group
WITH gone AS MATERIALIZED (
  SELECT l.* FROM unnest($1::int8[], $2::int8[], $3::int8[]) AS i(seq, lease, q)
  CROSS JOIN LATERAL (
    SELECT * FROM tampu.leased l WHERE l.seq = i.seq AND l.lease = i.lease AND l.q = i.q OFFSET 0
    FOR UPDATE) AS l),
out AS (DELETE FROM tampu.leased WHERE seq = ANY (ARRAY(SELECT seq FROM gone)))
SELECT m.seq, m.q, g.attempts, g.stamp, m.id, m.lane, m.rank, m.max_attempts, m.expires, m.key IS NOT NULL,
  g.lease, g.worker, g.cancel,
  CASE WHEN m.lane IS NOT NULL THEN (SELECT u.pace FROM tampu.queue u WHERE u.q = m.q) END
FROM gone g CROSS JOIN LATERAL (SELECT * FROM tampu.message m WHERE m.seq = g.seq OFFSET 0) AS m
