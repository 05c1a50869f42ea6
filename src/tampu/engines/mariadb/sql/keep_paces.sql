-- In:  columns: $1 q, $2 lane, $3 when all that was spent is saved up again. The caller has the lanes' locks.
INSERT INTO tampu_pace (q, lane, spent) VALUES {($1, $2, $3)} ON DUPLICATE KEY UPDATE spent = VALUES(spent)
