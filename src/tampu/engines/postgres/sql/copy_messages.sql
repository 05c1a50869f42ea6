-- Messages under ids of their own, ready at once at rank 0; `copy_ready` follows. Not a statement of a pipeline.
-- In:  rows in PostgreSQL's binary form
COPY tampu.message (seq, created, rank, q, max_attempts, ahead, id, body) FROM STDIN (FORMAT binary)
