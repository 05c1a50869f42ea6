-- In:  $1 q, $2 groups. The caller has the queue's lock.
-- Out: group, its last turn
SELECT lane, last FROM tampu_fair FORCE INDEX (PRIMARY) WHERE q = $1 AND lane IN ($2)
