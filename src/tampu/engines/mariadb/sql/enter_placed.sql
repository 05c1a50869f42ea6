-- Ready messages that the primary key of `ready` does not find.
-- In:  columns: $1 q, $2 seq, $3 rank, $4 pos
INSERT INTO tampu_placed (q, seq, place, pos) VALUES {($1, $2, $3, $4)}
