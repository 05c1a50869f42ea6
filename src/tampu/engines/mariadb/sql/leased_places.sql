-- In:  $1 q, $2 lanes
-- Out: lane, seq of those who have a place and are leased. The caller has the lanes' locks.
SELECT l.lane, l.seq FROM tampu_lane l FORCE INDEX (PRIMARY)
STRAIGHT_JOIN tampu_leased c FORCE INDEX (PRIMARY) ON c.seq = l.seq WHERE l.q = $1 AND l.lane IN ($2)
