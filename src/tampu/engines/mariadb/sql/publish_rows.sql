-- Messages that need no look-up, with or without expiry.
-- In:  $1 the time, $2 how far ids are ahead of it or NULL, columns: $3 seq, $4 q, $5 rank, $6 max_attempts,
--      $7 expires, $8 body
INSERT INTO tampu_message (seq, created, place, q, max_attempts, expires, ahead, body)
VALUES {($3, $1, $5, $4, $6, $7, $2, $8)}
