-- In:  $1 q, $2 groups. The caller has the queue's lock.
-- Out: group, its last turn
SELECT f.lane, f.last FROM unnest($2::bytea[]) AS i(lane)
CROSS JOIN LATERAL (SELECT * FROM tampu.fair f WHERE f.q = $1::int8 AND f.lane = i.lane OFFSET 0) AS f
