-- In:  $1 q, $2 lanes
-- Out: lane, seq of those who have a place. The caller has the lanes' locks.
SELECT lane, seq FROM tampu_lane FORCE INDEX (PRIMARY) WHERE q = $1 AND lane IN ($2)
