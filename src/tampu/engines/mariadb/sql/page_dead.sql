-- In:  $1 q, $2 at, $3 seq to go on after, $4 at most so many
-- Out: seq, at, seq in the order they died
SELECT seq, at, seq FROM tampu_dead FORCE INDEX (of_queue)
WHERE q = $1 AND (at > $2 OR (at = $2 AND seq > $3)) ORDER BY at, seq LIMIT $4
