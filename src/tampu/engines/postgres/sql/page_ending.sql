-- In:  $1 q, $2 state number, $3 entry to go on from, $4 at most so many
-- Out: no, seqs of what ended together, oldest first
SELECT no, seqs FROM tampu.ending WHERE q = $1::int8 AND state = $2::int8 AND no >= $3::int8
ORDER BY q, state, no LIMIT $4::int8
