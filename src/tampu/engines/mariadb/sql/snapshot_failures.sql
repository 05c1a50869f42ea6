-- In:  $1 seqs
-- Out: seq, the number of its latest failed attempt, where there was one
SELECT seq, MAX(no) FROM tampu_failure FORCE INDEX (PRIMARY) WHERE seq IN ($1) GROUP BY seq
