-- In:  columns: $1 q, $2 state number, $3 change
INSERT INTO tampu_tally (q, kind, n) VALUES {($1, $2, $3)}
