-- Messages of one queue that are ready at once, at rank 0, and have nothing else.
-- In:  $1 q, $2 the time, $3 how far ids are ahead of it or NULL, $4 max_attempts, $5 seqs, $6 bodies
INSERT INTO tampu_message (seq, created, place, q, max_attempts, ahead, body) VALUES {($5, $2, 0, $1, $4, $3, $6)};
INSERT INTO tampu_ready (q, place, pos, seq, attempts) VALUES {($1, 0, $5, $5, 0)}
