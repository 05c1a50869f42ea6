-- In:  columns: $1 q, $2 lane, $3 seq whose turn it is now
INSERT INTO tampu_lane (q, lane, seq) VALUES {($1, $2, $3)}
