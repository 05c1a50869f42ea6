-- In:  $1 q, $2 lanes. The caller has the lanes' locks.
-- Out: lane, time and seq of one that waits for a token, when all that its group has spent is saved up again
SELECT l.lane, d.run_at, d.seq, p.spent FROM tampu_pace p FORCE INDEX (PRIMARY)
STRAIGHT_JOIN tampu_lane l FORCE INDEX (PRIMARY) ON l.q = p.q AND l.lane = p.lane
STRAIGHT_JOIN tampu_delayed d FORCE INDEX (PRIMARY) ON d.seq = l.seq AND d.run_at <= p.spent
WHERE p.q = $1 AND p.lane IN ($2)
