-- In:  $1 the time, $2 at most so many
-- Out: seq of each result past its time, locked
SELECT seq FROM tampu_result FORCE INDEX (until) WHERE until <= $1 ORDER BY until LIMIT $2 FOR UPDATE SKIP LOCKED
