-- In:  rows in PostgreSQL's binary form
COPY tampu.ready (rank, pos, seq, q, attempts) FROM STDIN (FORMAT binary)
