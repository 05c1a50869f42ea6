-- Messages that became ready in a transaction of the user's: when it commits, we are not there to tell the index.
-- In:  columns: $1 q, $2 rank, $3 pos
INSERT INTO tampu_stale (q, place, pos) VALUES {($1, $2, $3)}
