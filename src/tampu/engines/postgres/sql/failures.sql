-- In:  $1 seq
-- Out: attempt, at, outcome, worker, error, traceback; oldest first
SELECT attempt, at, outcome, worker, error, traceback FROM tampu.failure WHERE seq = $1::int8 ORDER BY no
