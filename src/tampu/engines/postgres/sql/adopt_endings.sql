-- adopt: what ended together, oldest first, with entries of their own, for they ended in no commit of ours.
-- In:  $1 q, arrays: $2 state number, $3 when, $4 seqs
INSERT INTO tampu.ending (q, state, no, at, seqs)
SELECT $1::int8, d.state, nextval('tampu.entry'), d.at, d.seqs
FROM unnest($2::int8[], $3::int8[], $4::bytea[]) AS d(state, at, seqs)
