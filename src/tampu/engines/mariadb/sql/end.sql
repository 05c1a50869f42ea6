-- In:  $1 the time, columns: $2 seq, $3 lease, $4 q, $5 attempts, $6 state
INSERT INTO tampu_ended (seq, at, lease, q, attempts, state) VALUES {($2, $1, $3, $4, $5, $6)}
