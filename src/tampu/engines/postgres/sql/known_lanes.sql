-- In:  arrays: $1 q, $2 lane
-- Out: q, lane of those where somebody's turn it is. The caller has the lanes' locks.
SELECT l.q, l.lane FROM unnest($1::int8[], $2::bytea[]) AS i(q, lane)
CROSS JOIN LATERAL (SELECT * FROM tampu.lane l WHERE l.q = i.q AND l.lane = i.lane OFFSET 0) AS l
