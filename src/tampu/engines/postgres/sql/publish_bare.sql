-- Messages of one queue that are ready at once, at rank 0, and have nothing else.
-- In:  $1 q, $2 the time, $3 how far ids are ahead of it or NULL, $4 max_attempts, $5 seqs, $6 bodies
WITH item AS (SELECT * FROM unnest($5::int8[], $6::bytea[]) AS i(seq, body)),
stored AS (
  INSERT INTO tampu.message (seq, created, rank, q, max_attempts, ahead, body)
  SELECT seq, $2::int8, 0, $1::int8, $4::int8, $3::int8, body FROM item)
INSERT INTO tampu.ready (rank, pos, seq, q, attempts) SELECT 0, seq, seq, $1::int8, 0 FROM unnest($5::int8[]) AS s(seq)
