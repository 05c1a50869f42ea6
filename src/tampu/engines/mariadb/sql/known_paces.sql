-- In:  $1 q, $2 lanes, of a queue whose groups have a pace
-- Out: lane, when all that was spent is saved up again. The caller has the lanes' locks.
SELECT lane, spent FROM tampu_pace FORCE INDEX (PRIMARY) WHERE q = $1 AND lane IN ($2)
