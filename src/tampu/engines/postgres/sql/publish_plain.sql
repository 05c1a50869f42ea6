-- Messages that need no look-up: ready, or delayed, with or without expiry.
-- In:  $1 the time, $2 how far ids are ahead of it or NULL, arrays: $3 seq, $4 q, $5 rank, $6 max_attempts,
--      $7 expires, $8 run_at (NULL: ready), $9 body
WITH item AS MATERIALIZED (
  SELECT * FROM unnest($3::int8[], $4::int8[], $5::int8[], $6::int8[], $7::int8[], $8::int8[], $9::bytea[])
    AS i(seq, q, rank, max_attempts, expires, run_at, body)),
stored AS (
  INSERT INTO tampu.message (seq, created, rank, q, max_attempts, expires, ahead, body)
  SELECT seq, $1::int8, rank, q, max_attempts, expires, $2::int8, body FROM item),
at_once AS (
  INSERT INTO tampu.ready (rank, pos, seq, q, attempts) SELECT rank, seq, seq, q, 0 FROM item WHERE run_at IS NULL),
later AS (
  INSERT INTO tampu.delayed (seq, run_at, q, attempts) SELECT seq, run_at, q, 0 FROM item WHERE run_at IS NOT NULL)
INSERT INTO tampu.expiry (at, seq) SELECT expires, seq FROM item WHERE expires IS NOT NULL
