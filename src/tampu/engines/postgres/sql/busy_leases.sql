-- sweep: leases that could not be locked and are there, so somebody else has locked them.
-- In:  arrays: $1 seq, $2 lease
-- Out: seq, lease
SELECT l.seq, l.lease FROM unnest($1::int8[], $2::int8[]) AS i(seq, lease) CROSS JOIN LATERAL (
  SELECT l.seq, l.lease FROM tampu.leased l WHERE l.seq = i.seq AND l.lease = i.lease OFFSET 0) AS l
