-- In:  $1 q, $2 seq to go on after, $3 at most so many
-- Out: seq, seq in publish order
SELECT seq, seq FROM tampu.held WHERE q = $1::int8 AND seq > $2::int8 ORDER BY q, seq LIMIT $3::int8
