-- adopt: messages of another store, in no index yet.
-- In:  $1 q, columns: $2 seq, $3 created, $4 rank, $5 max_attempts, $6 expires, $7 id, $8 key, $9 lane, $10 body
INSERT INTO tampu_message (seq, created, place, q, max_attempts, expires, id, word, lane, body)
VALUES {($2, $3, $4, $1, $5, $6, $7, $8, $9, $10)}
