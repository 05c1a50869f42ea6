-- In:  $1 q
-- Out: rank of the first ready message, the last turn that a group was given; NULL where there is none
SELECT (SELECT r.rank FROM tampu.ready r WHERE r.q = $1::int8 ORDER BY r.q, r.rank, r.pos LIMIT 1),
  (SELECT f.last FROM tampu.fair f WHERE f.q = $1::int8 ORDER BY f.q DESC, f.last DESC LIMIT 1)
