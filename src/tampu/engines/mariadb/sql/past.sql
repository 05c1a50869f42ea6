-- sweep: what may have expired.
-- In:  $1 the time, $2 at most so many
-- Out: seq
SELECT seq FROM tampu_expiry FORCE INDEX (PRIMARY) WHERE at <= $1 ORDER BY at, seq LIMIT $2
