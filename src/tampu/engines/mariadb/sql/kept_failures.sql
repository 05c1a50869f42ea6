-- In:  $1 seqs
-- Out: seq, attempt, at, outcome, worker, error, traceback; oldest first
SELECT seq, attempt, at, outcome, worker, error, traceback FROM tampu_failure FORCE INDEX (PRIMARY)
WHERE seq IN ($1) ORDER BY seq, no
