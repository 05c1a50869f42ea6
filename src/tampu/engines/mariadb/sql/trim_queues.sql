-- trim: queues whose oldest end is old enough to look at.
-- In:  $1 the time by which it must have ended
-- Out: q, state number
SELECT u.q, s.state FROM tampu_queue u CROSS JOIN (SELECT 4 AS state UNION ALL SELECT 6 UNION ALL SELECT 7) AS s
WHERE (SELECT e.at FROM tampu_ending e FORCE INDEX (PRIMARY) WHERE e.q = u.q AND e.state = s.state
  ORDER BY e.no LIMIT 1) <= $1
