-- In:  $1 tenant or NULL for any, $2 seqs
-- Out: seq, q, stamp; messages of other tenants, and those whose ids users gave, are not found
SELECT m.seq, m.q, m.created DIV 1000 + COALESCE(m.ahead, 0)
FROM tampu_message m FORCE INDEX (PRIMARY) STRAIGHT_JOIN tampu_queue u FORCE INDEX (PRIMARY) ON u.q = m.q
WHERE m.seq IN ($2) AND m.id IS NULL AND ($1 IS NULL OR u.tenant = $1)
