-- In:  $1 seq
-- Out: attempt, at, outcome, worker, error, traceback; oldest first
SELECT attempt, at, outcome, worker, error, traceback FROM tampu_failure WHERE seq = $1 ORDER BY no
