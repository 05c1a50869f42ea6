-- trim and purge: what ended together, oldest first, locked.
-- In:  $1 q, $2 state number, $3 at most so many
-- Out: no, at, seqs
SELECT no, at, seqs FROM tampu.ending WHERE q = $1::int8 AND state = $2::int8
ORDER BY q, state, no LIMIT $3::int8 FOR UPDATE SKIP LOCKED
