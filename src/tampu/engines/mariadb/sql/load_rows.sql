-- Messages of one queue under ids of their own, ready at once at rank 0.
-- In:  $1 q, $2 the time, $3 how far ids would be ahead of it or NULL, $4 max_attempts,
--      columns: $5 seq, $6 id, $7 body
INSERT INTO tampu_message (seq, created, place, q, max_attempts, ahead, id, body)
VALUES {($5, $2, 0, $1, $4, $3, $6, $7)};
INSERT INTO tampu_own_id (id, seq) VALUES {($6, $5)};
INSERT INTO tampu_ready (q, place, pos, seq, attempts) VALUES {($1, 0, $5, $5, 0)}
