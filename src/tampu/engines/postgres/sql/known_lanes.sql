-- In:  arrays: $1 q, $2 lane
-- Out: q, lane, places, pace and burst of its queue, seq of one that has a place; once without seq where nobody has. The
--      caller has the lanes' locks.
SELECT i.q, i.lane, u.places, u.pace, u.pace_burst, l.seq FROM unnest($1::int8[], $2::bytea[]) AS i(q, lane)
CROSS JOIN LATERAL (SELECT u.places, u.pace, u.pace_burst FROM tampu.queue u WHERE u.q = i.q OFFSET 0) AS u
LEFT JOIN LATERAL (SELECT l.seq FROM tampu.lane l WHERE l.q = i.q AND l.lane = i.lane OFFSET 0) AS l ON true
