-- In:  $1 q, $2 run_at, $3 seq to go on after, $4 at most so many
-- Out: seq, run_at, seq in the order they fall due
SELECT seq, run_at, seq FROM tampu_delayed FORCE INDEX (of_queue)
WHERE q = $1 AND (run_at > $2 OR (run_at = $2 AND seq > $3)) ORDER BY run_at, seq LIMIT $4
