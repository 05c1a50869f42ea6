-- adopt: expiries of messages that wait, and keys that stand for them, if nobody here has the key.
-- In:  $1 q, arrays: $2 seq, $3 expires or NULL, $4 key or NULL
WITH item AS MATERIALIZED (
  SELECT * FROM unnest($2::int8[], $3::int8[], $4::bytea[]) AS i(seq, expires, key)),
expire AS (INSERT INTO tampu.expiry (at, seq) SELECT expires, seq FROM item WHERE expires IS NOT NULL)
INSERT INTO tampu.key (q, key, seq) SELECT $1::int8, key, seq FROM item WHERE key IS NOT NULL ORDER BY key
ON CONFLICT DO NOTHING
