-- In:  $1 the time, columns: $2 seq, $3 lease, $4 q, $5 attempts, $6 reason
INSERT INTO tampu_dead (seq, at, lease, q, attempts, reason) VALUES {($2, $1, $3, $4, $5, $6)}
