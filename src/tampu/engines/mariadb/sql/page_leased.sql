-- In:  $1 q, $2 seq to go on after, $3 at most so many
-- Out: seq, seq in publish order
SELECT seq, seq FROM tampu_leased FORCE INDEX (PRIMARY) WHERE q = $1 AND seq > $2 ORDER BY seq LIMIT $3
