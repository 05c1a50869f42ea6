-- Messages of one queue under ids of their own, ready at once at rank 0.
-- In:  $1 q, $2 the time, $3 how far ids would be ahead of it or NULL, $4 max_attempts, arrays: $5 seq, $6 id, $7 body
WITH stored AS (
  INSERT INTO tampu.message (seq, created, rank, q, max_attempts, ahead, id, body)
  SELECT seq, $2::int8, 0, $1::int8, $4::int8, $3::int8, id, body
  FROM unnest($5::int8[], $6::uuid[], $7::bytea[]) AS i(seq, id, body))
INSERT INTO tampu.ready (rank, pos, seq, q, attempts) SELECT 0, seq, seq, $1::int8, 0 FROM unnest($5::int8[]) AS s(seq)
