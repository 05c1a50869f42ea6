-- In:  $1 q
-- Out: rank of the first ready message, the last turn that a group was given; NULL where there is none
SELECT (SELECT place FROM tampu_ready FORCE INDEX (PRIMARY) WHERE q = $1 ORDER BY q, place, pos LIMIT 1),
  (SELECT last FROM tampu_fair FORCE INDEX (of_queue) WHERE q = $1 ORDER BY last DESC LIMIT 1)
