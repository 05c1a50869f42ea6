-- In:  $1 tenant, $2 idempotency keys, $3 the time
-- Out: key, seq, stamp, id, digest of those whose window is open
SELECT word, seq, stamp, id, digest FROM tampu_idempotency FORCE INDEX (PRIMARY)
WHERE tenant = $1 AND word IN ($2) AND until > $3
