-- What ended, commit by commit.
-- In:  $1 qs, $2 state number, $3 ended from, $4 ended before
-- Out: q, state number, at, seqs
SELECT q, state, at, seqs FROM tampu_ending FORCE INDEX (PRIMARY)
WHERE q IN ($1) AND state = $2 AND at >= $3 AND at < $4
