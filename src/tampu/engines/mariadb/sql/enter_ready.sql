-- In:  columns: $1 rank, $2 pos, $3 seq, $4 lease, $5 q, $6 attempts
INSERT INTO tampu_ready (q, place, pos, seq, lease, attempts) VALUES {($5, $1, $2, $3, $4, $6)}
