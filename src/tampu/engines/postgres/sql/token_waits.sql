-- In:  $1 q, $2 lanes. The caller has the lanes' locks.
-- Out: lane, time and seq of one that waits for a token, when all that its group has spent is saved up again
SELECT i.lane, d.run_at, d.seq, p.spent FROM unnest($2::bytea[]) AS i(lane)
CROSS JOIN LATERAL (SELECT p.spent FROM tampu.pace p WHERE p.q = $1::int8 AND p.lane = i.lane OFFSET 0) AS p
CROSS JOIN LATERAL (
  SELECT d.seq, d.run_at FROM (SELECT l.seq FROM tampu.lane l WHERE l.q = $1::int8 AND l.lane = i.lane OFFSET 0) AS l
  CROSS JOIN LATERAL (
    SELECT d.seq, d.run_at FROM tampu.delayed d WHERE d.seq = l.seq AND d.run_at <= p.spent OFFSET 0) AS d
  OFFSET 0) AS d
