-- trim: queues whose oldest end is old enough to look at.
-- In:  $1 the time by which it must have ended
-- Out: q, state number
SELECT u.q, s.state FROM tampu.queue u CROSS JOIN (VALUES (4), (6), (7)) AS s(state)
CROSS JOIN LATERAL (
  SELECT e.at FROM tampu.ending e WHERE e.q = u.q AND e.state = s.state ORDER BY e.q, e.state, e.no LIMIT 1) AS e
WHERE e.at <= $1::int8 ORDER BY u.q, s.state
