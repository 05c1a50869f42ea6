-- In:  columns: $1 seq, $2 until, $3 body
INSERT INTO tampu_result (seq, until, body) VALUES {($1, $2, $3)}
ON DUPLICATE KEY UPDATE until = VALUES(until), body = VALUES(body)
