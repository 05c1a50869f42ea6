-- In:  $1 the time, arrays by growing seq: $2 seq, $3 lease, $4 q, $5 how long
-- Out: seq, lease, until, whether a cancel was asked for, until before. An item without a row is LeaseLost.
WITH held AS MATERIALIZED (
  SELECT l.seq, l.until, i.us FROM unnest($2::int8[], $3::int8[], $4::int8[], $5::int8[]) AS i(seq, lease, q, us)
  CROSS JOIN LATERAL (
    SELECT l.seq, l.until FROM tampu.leased l
    WHERE l.seq = i.seq AND l.lease = i.lease AND l.q = i.q OFFSET 0 FOR UPDATE) AS l)
UPDATE tampu.leased l SET until = $1::int8 + (SELECT h.us FROM held h WHERE h.seq = l.seq)
WHERE l.seq = ANY (ARRAY(SELECT seq FROM held))
RETURNING l.seq, l.lease, l.until, l.cancel, (SELECT h.until FROM held h WHERE h.seq = l.seq)
