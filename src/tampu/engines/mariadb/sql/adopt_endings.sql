-- adopt: what ended together, oldest first, with entries of their own, for they ended in no commit of ours.
-- In:  $1 q, columns: $2 state number, $3 when, $4 seqs
INSERT INTO tampu_ending (q, state, no, at, seqs) VALUES {($1, $2, NEXTVAL(tampu_entry), $3, $4)}
