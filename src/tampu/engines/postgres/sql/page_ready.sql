-- In:  $1 q, $2 rank, $3 pos to go on after, $4 at most so many
-- Out: seq, rank, pos in the order of delivery
SELECT seq, rank, pos FROM tampu.ready WHERE q = $1::int8 AND (rank, pos) > ($2::int8, $3::int8)
ORDER BY q, rank, pos LIMIT $4::int8
