-- adopt: messages that died elsewhere.
-- In:  $1 q, columns: $2 seq, $3 when, $4 attempts, $5 reason
INSERT INTO tampu_dead (seq, at, q, attempts, reason) VALUES {($2, $3, $1, $4, $5)}
