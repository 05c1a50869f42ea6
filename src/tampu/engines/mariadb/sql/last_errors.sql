-- In:  $1 seqs
-- Out: seq, the error of its latest failed attempt, where there was one
SELECT f.seq, f.error FROM tampu_failure f FORCE INDEX (PRIMARY) WHERE f.seq IN ($1)
  AND f.no = (SELECT l.no FROM tampu_failure l FORCE INDEX (PRIMARY) WHERE l.seq = f.seq ORDER BY l.no DESC LIMIT 1)
