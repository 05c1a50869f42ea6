-- Statements that import and export messages, for moving them between stores.

-- name: select_for_export
-- What an export needs of messages, besides `select_messages`.
-- Run by: export
-- In:  $1 seqs, $2 now or NULL (then the server's clock)
-- Out: seq, rank, group, whether it waits for a slot of its group, whether its key refers to it, result, until when
SELECT m.seq, m.rank, m.lane, h.lane IS NOT NULL, k.seq IS NOT NULL, r.body, r.until
FROM unnest($1::int8[]) AS s(seq)
CROSS JOIN LATERAL (SELECT * FROM tampu.message m WHERE m.seq = s.seq OFFSET 0) AS m
LEFT JOIN LATERAL (SELECT h.lane FROM tampu.held h WHERE h.seq = m.seq OFFSET 0) AS h ON true
LEFT JOIN LATERAL (
  SELECT k.seq FROM tampu.key k WHERE k.q = m.q AND k.key = m.key AND k.seq = m.seq OFFSET 0) AS k ON true
LEFT JOIN LATERAL (
  SELECT r.body, r.until FROM tampu.result r WHERE r.seq = m.seq
    AND r.until > coalesce($2::int8, (extract(epoch FROM statement_timestamp()) * 1000000)::int8) OFFSET 0) AS r ON true

-- name: select_failures_for_export
-- The failed attempts of messages, oldest first.
-- Run by: export
-- In:  $1 seqs
-- Out: seq, attempt, at, outcome, worker, error, traceback
SELECT f.seq, f.attempt, f.at, f.outcome, f.worker, f.error, f.traceback FROM unnest($1::int8[]) AS s(seq)
CROSS JOIN LATERAL (SELECT * FROM tampu.failure f WHERE f.seq = s.seq ORDER BY f.seq, f.no OFFSET 0) AS f

-- name: page_idempotency_keys
-- A page of idempotency keys, in order.
-- Run by: export
-- In:  $1 scope, $2 name to continue after, $3 now or NULL (then the server's clock), $4 limit
-- Out: name of the key, digest, until, seq, stamp, id, whether its window is open
SELECT d.key, d.digest, d.until, d.seq, d.stamp, d.id,
  d.until > coalesce($3::int8, (extract(epoch FROM statement_timestamp()) * 1000000)::int8)
FROM tampu.idempotency d WHERE d.tenant = $1::text AND d.key > $2::bytea ORDER BY d.tenant, d.key LIMIT $4::int8

-- name: import_messages
-- Stores imported messages. Ended and dead ones enter their index too.
-- Run by: import
-- In:  $1 q, arrays: $2 seq, $3 created, $4 rank, $5 max_attempts, $6 expires, $7 id, $8 key, $9 group, $10 body,
--      $11 state number, $12 attempts, $13 when it ended, $14 reason
-- Out: nothing
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

-- name: import_endings
-- Records imported endings, oldest first. Each gets a new entry number, because it ended in no commit of this store.
-- Run by: import
-- In:  $1 q, arrays: $2 state number, $3 when, $4 seqs
-- Out: nothing
INSERT INTO tampu.ending (q, state, no, at, seqs)
SELECT $1::int8, d.state, nextval('tampu.entry'), d.at, d.seqs
FROM unnest($2::int8[], $3::int8[], $4::bytea[]) AS d(state, at, seqs)

-- name: import_keys_and_expiries
-- Records expiries of waiting messages, and their keys, if no message here has the key.
-- Run by: import
-- In:  $1 q, arrays: $2 seq, $3 expires or NULL, $4 key or NULL
-- Out: nothing
WITH item AS MATERIALIZED (
  SELECT * FROM unnest($2::int8[], $3::int8[], $4::bytea[]) AS i(seq, expires, key)),
expire AS (INSERT INTO tampu.expiry (at, seq) SELECT expires, seq FROM item WHERE expires IS NOT NULL)
INSERT INTO tampu.key (q, key, seq) SELECT $1::int8, key, seq FROM item WHERE key IS NOT NULL ORDER BY key
ON CONFLICT DO NOTHING

-- name: import_failures
-- Records failed attempts, oldest first.
-- Run by: import
-- In:  arrays: $1 seq, $2 at, $3 attempt, $4 outcome, $5 worker, $6 error, $7 traceback
-- Out: nothing
INSERT INTO tampu.failure (seq, at, attempt, outcome, worker, error, traceback)
SELECT seq, at, attempt, convert_from(outcome, 'UTF8'), worker, error, traceback
FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::bytea[], $5::bytea[], $6::bytea[], $7::bytea[])
  AS i(seq, at, attempt, outcome, worker, error, traceback)

-- name: import_idempotency_keys
-- Records idempotency keys. One that is in use here stays as it is.
-- Run by: import
-- In:  $1 scope, $2 now, arrays: $3 name of an idempotency key, $4 seq, $5 stamp, $6 until, $7 id, $8 digest
-- Out: nothing
INSERT INTO tampu.idempotency AS d (tenant, key, seq, stamp, until, id, digest)
SELECT $1::text, key, seq, stamp, until, id, digest
FROM unnest($3::bytea[], $4::int8[], $5::int8[], $6::int8[], $7::uuid[], $8::bytea[])
  AS i(key, seq, stamp, until, id, digest)
ON CONFLICT (tenant, key) DO UPDATE
SET seq = excluded.seq, stamp = excluded.stamp, until = excluded.until, id = excluded.id, digest = excluded.digest
WHERE d.until <= $2::int8
