-- settle: where receipts led that are not current any more. Asked with a newer snapshot than the fence had, so that
-- a settlement that ran beside the same one finds what that one did.
-- In:  columns: $1 q, $2 seq, $3 the trace that the verb leaves of the lease
-- Out: seq, trace, state number, stamp, id
SELECT e.seq, e.lease, e.state, m.created DIV 1000 + COALESCE(m.ahead, 0), m.id
FROM tampu_ended e FORCE INDEX (PRIMARY) STRAIGHT_JOIN tampu_message m FORCE INDEX (PRIMARY) ON m.seq = e.seq
WHERE e.seq IN ($2) AND (e.seq, e.lease, e.q) IN ({($2, $3, $1)});
SELECT d.seq, d.lease, 5, m.created DIV 1000 + COALESCE(m.ahead, 0), m.id
FROM tampu_dead d FORCE INDEX (PRIMARY) STRAIGHT_JOIN tampu_message m FORCE INDEX (PRIMARY) ON m.seq = d.seq
WHERE d.seq IN ($2) AND (d.seq, d.lease, d.q) IN ({($2, $3, $1)});
SELECT d.seq, d.lease, 1, m.created DIV 1000 + COALESCE(m.ahead, 0), m.id
FROM tampu_delayed d FORCE INDEX (PRIMARY) STRAIGHT_JOIN tampu_message m FORCE INDEX (PRIMARY) ON m.seq = d.seq
WHERE d.seq IN ($2) AND (d.seq, d.lease, d.q) IN ({($2, $3, $1)});
SELECT r.seq, r.lease, 0, m.created DIV 1000 + COALESCE(m.ahead, 0), m.id
FROM tampu_placed p FORCE INDEX (PRIMARY)
STRAIGHT_JOIN tampu_ready r FORCE INDEX (PRIMARY) ON r.q = p.q AND r.place = p.place AND r.pos = p.pos
STRAIGHT_JOIN tampu_message m FORCE INDEX (PRIMARY) ON m.seq = r.seq
WHERE ({(p.q = $1 AND p.seq = $2) OR}) AND (r.seq, r.lease) IN ({($2, $3)})
