-- In:  columns: $1 seq, $2 run_at, $3 lease, $4 q, $5 attempts
INSERT INTO tampu_delayed (seq, run_at, lease, q, attempts) VALUES {($1, $2, $3, $4, $5)}
