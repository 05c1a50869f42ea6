-- In:  $1 q, $2 state number, $3 entry to go on from, $4 at most so many
-- Out: no, seqs of what ended together, oldest first
SELECT no, seqs FROM tampu_ending FORCE INDEX (PRIMARY) WHERE q = $1 AND state = $2 AND no >= $3 ORDER BY no LIMIT $4
