-- In:  $1 tenant or NULL for any, $2 ids
-- Out: id, seq, q; messages of other tenants are not found
SELECT m.id, m.seq, m.q FROM tampu_own_id i FORCE INDEX (PRIMARY)
STRAIGHT_JOIN tampu_message m FORCE INDEX (PRIMARY) ON m.seq = i.seq
STRAIGHT_JOIN tampu_queue u FORCE INDEX (PRIMARY) ON u.q = m.q
WHERE i.id IN ($2) AND ($1 IS NULL OR u.tenant = $1)
