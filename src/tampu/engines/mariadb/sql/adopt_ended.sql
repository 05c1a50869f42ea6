-- adopt: messages that ended elsewhere.
-- In:  $1 q, columns: $2 seq, $3 when, $4 attempts, $5 state number
INSERT INTO tampu_ended (seq, at, q, attempts, state) VALUES {($2, $3, $1, $4, $5)}
