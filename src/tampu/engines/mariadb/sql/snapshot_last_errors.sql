-- In:  $1 first and $2 last seq
-- Out: seq, the error of its latest failed attempt, of those between them that have one
SELECT f.seq, f.error FROM (
  SELECT seq, MAX(no) AS no FROM tampu_failure FORCE INDEX (PRIMARY) WHERE seq BETWEEN $1 AND $2 GROUP BY seq) AS l
STRAIGHT_JOIN tampu_failure f FORCE INDEX (PRIMARY) ON f.seq = l.seq AND f.no = l.no
