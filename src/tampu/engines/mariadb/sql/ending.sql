-- After `tell` or `entry`.
-- In:  $1 the time, columns: $2 q, $3 state number, $4 seqs
INSERT INTO tampu_ending (q, state, no, at, seqs) VALUES {($2, $3, LASTVAL(tampu_entry), $1, $4)}
