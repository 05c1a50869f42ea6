-- adopt: messages of another store; those that have ended, or are dead, enter their index too.
-- In:  $1 q, arrays: $2 seq, $3 created, $4 rank, $5 max_attempts, $6 expires, $7 id, $8 key, $9 lane, $10 body,
--      $11 state number, $12 attempts, $13 when it ended, $14 reason
WITH item AS MATERIALIZED (
  SELECT * FROM unnest($2::int8[], $3::int8[], $4::int8[], $5::int8[], $6::int8[], $7::uuid[], $8::bytea[], $9::bytea[],
    $10::bytea[], $11::int8[], $12::int8[], $13::int8[], $14::bytea[])
    AS i(seq, created, rank, max_attempts, expires, id, key, lane, body, state, attempts, at, reason)),
stored AS (
  INSERT INTO tampu.message (seq, created, rank, q, max_attempts, expires, id, key, lane, body)
  SELECT seq, created, rank, $1::int8, max_attempts, expires, id, key, lane, body FROM item),
buried AS (
  INSERT INTO tampu.dead (seq, at, q, attempts, reason)
  SELECT seq, at, $1::int8, attempts, reason FROM item WHERE state = 5)
INSERT INTO tampu.ended (seq, at, q, attempts, state)
SELECT seq, at, $1::int8, attempts, state FROM item WHERE state IN (4, 6, 7)
