-- In:  $1 q, $2 at, $3 seq to go on after, $4 at most so many
-- Out: seq, at, seq in the order they died
SELECT seq, at, seq FROM tampu.dead WHERE q = $1::int8 AND (at, seq) > ($2::int8, $3::int8)
ORDER BY q, at, seq LIMIT $4::int8
