-- In:  arrays: $1 q, $2 lane, of queues whose groups have a pace
-- Out: q, lane, when all that was spent is saved up again (NULL: it is), seq of one that has a place and is leased; once
--      without seq where there is none. The caller has the lanes' locks.
SELECT i.q, i.lane, p.spent, c.seq FROM unnest($1::int8[], $2::bytea[]) AS i(q, lane)
LEFT JOIN LATERAL (SELECT p.spent FROM tampu.pace p WHERE p.q = i.q AND p.lane = i.lane OFFSET 0) AS p ON true
LEFT JOIN LATERAL (
  SELECT l.seq FROM (SELECT l.seq FROM tampu.lane l WHERE l.q = i.q AND l.lane = i.lane OFFSET 0) AS l
  CROSS JOIN LATERAL (SELECT FROM tampu.leased c WHERE c.seq = l.seq OFFSET 0) AS c OFFSET 0) AS c ON true
