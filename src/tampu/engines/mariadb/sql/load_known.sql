-- In:  $1 tenant, $2 first and $3 last id that is looked for (16 bytes each)
-- Out: ids between them that messages of the tenant have
SELECT i.id FROM tampu_own_id i FORCE INDEX (PRIMARY)
STRAIGHT_JOIN tampu_message m FORCE INDEX (PRIMARY) ON m.seq = i.seq
STRAIGHT_JOIN tampu_queue u FORCE INDEX (PRIMARY) ON u.q = m.q
WHERE i.id BETWEEN $2 AND $3 AND u.tenant = $1
