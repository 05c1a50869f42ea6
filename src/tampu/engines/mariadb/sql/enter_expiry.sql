-- In:  columns: $1 when, $2 seq
INSERT INTO tampu_expiry (at, seq) VALUES {($1, $2)}
