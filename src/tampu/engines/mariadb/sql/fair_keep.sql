-- In:  columns: $1 q, $2 group, $3 its last turn
INSERT INTO tampu_fair (q, lane, last) VALUES {($1, $2, $3)} ON DUPLICATE KEY UPDATE last = VALUES(last)
