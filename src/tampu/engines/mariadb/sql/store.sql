-- Messages that belong to no index yet.
-- In:  $1 the time, $2 how far ids are ahead of it or NULL, columns: $3 seq, $4 q, $5 rank, $6 max_attempts,
--      $7 expires, $8 key, $9 lane, $10 id, $11 body
INSERT INTO tampu_message (seq, created, place, q, max_attempts, expires, ahead, id, word, lane, body)
VALUES {($3, $1, $5, $4, $6, $7, $2, $10, $8, $9, $11)}
