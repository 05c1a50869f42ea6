-- What ended, commit by commit.
-- In:  $1 qs, $2 state numbers, $3 ended from, $4 ended before
-- Out: q, state number, at, seqs
SELECT q, state, at, seqs FROM tampu.ending
WHERE q = ANY ($1::int8[]) AND state = ANY ($2::int8[]) AND at >= $3::int8 AND at < $4::int8
