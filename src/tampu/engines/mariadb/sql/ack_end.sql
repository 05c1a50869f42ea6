-- settle: what acks of one claim leave.
-- In:  $1 lease, $2 q, $3 the time, $4 the state's number, columns: $5 seq, $6 attempts
INSERT INTO tampu_ended (seq, at, lease, q, attempts, state) VALUES {($5, $3, $1, $2, $6, $4)}
