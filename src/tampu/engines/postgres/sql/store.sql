-- Messages that belong to no index yet.
-- In:  $1 the time, $2 how far ids are ahead of it or NULL, arrays: $3 seq, $4 q, $5 rank, $6 max_attempts,
--      $7 expires, $8 key, $9 lane, $10 id, $11 body
INSERT INTO tampu.message (seq, created, rank, q, max_attempts, expires, ahead, id, key, lane, body)
SELECT seq, $1::int8, rank, q, max_attempts, expires, $2::int8, id, key, lane, body
FROM unnest($3::int8[], $4::int8[], $5::int8[], $6::int8[], $7::int8[], $8::bytea[], $9::bytea[], $10::uuid[],
  $11::bytea[]) AS i(seq, q, rank, max_attempts, expires, key, lane, id, body)
