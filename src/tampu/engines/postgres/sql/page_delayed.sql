-- In:  $1 q, $2 run_at, $3 seq to go on after, $4 at most so many
-- Out: seq, run_at, seq in the order they fall due
SELECT seq, run_at, seq FROM tampu.delayed WHERE q = $1::int8 AND (run_at, seq) > ($2::int8, $3::int8)
ORDER BY q, run_at, seq LIMIT $4::int8
