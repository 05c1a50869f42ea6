-- In:  columns: $1 seq, $2 run_at, $3 q, $4 attempts, $5 lane, $6 reason
INSERT INTO tampu_held (seq, run_at, q, attempts, lane, reason) VALUES {($1, $2, $3, $4, $5, $6)}
