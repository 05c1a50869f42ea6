-- settle: where receipts led that are not current any more. Asked with a newer snapshot than the fence had, so that
-- a settlement that ran beside the same one finds what that one did.
-- In:  arrays: $1 q, $2 seq, $3 the trace that the verb leaves of the lease
-- Out: seq, trace, state number, stamp, id
SELECT i.seq, i.trace, w.state, m.created / 1000 + coalesce(m.ahead, 0), m.id
FROM unnest($1::int8[], $2::int8[], $3::int8[]) AS i(q, seq, trace)
CROSS JOIN LATERAL (SELECT * FROM tampu.message m WHERE m.seq = i.seq AND m.q = i.q OFFSET 0) AS m
CROSS JOIN LATERAL (
  SELECT state FROM tampu.ended e WHERE e.seq = i.seq AND e.lease = i.trace
  UNION ALL SELECT 5 FROM tampu.dead d WHERE d.seq = i.seq AND d.lease = i.trace
  UNION ALL SELECT 1 FROM tampu.delayed d WHERE d.seq = i.seq AND d.lease = i.trace
  UNION ALL SELECT 0 FROM tampu.ready r
    WHERE r.q = i.q AND r.seq = i.seq AND (r.rank <> 0 OR r.pos <> r.seq) AND r.lease = i.trace) AS w
