-- trim and purge: what ended together, oldest first, locked.
-- In:  $1 q, $2 state number, $3 at most so many
-- Out: no, at, seqs
SELECT no, at, seqs FROM tampu_ending FORCE INDEX (PRIMARY) WHERE q = $1 AND state = $2 ORDER BY no LIMIT $3
FOR UPDATE SKIP LOCKED
