-- Statements that import and export messages, for moving them between stores.

-- name: select_for_export
-- What an export needs of messages, besides `select_messages`.
-- Run by: export
-- In:  $1 seqs, $2 now
-- Out: seq, rank, group, whether it waits for a slot of its group, whether its key refers to it, result, until when
SELECT m.seq, m.rank, CAST(m.lane AS BLOB), h.lane IS NOT NULL, k.seq IS NOT NULL, r.body, r.until
FROM json_each($1) j CROSS JOIN tampu_message m ON m.seq = j.value
LEFT JOIN tampu_held h ON h.seq = m.seq
LEFT JOIN tampu_key k ON k.q = m.q AND k.key = m.key AND k.seq = m.seq
LEFT JOIN tampu_result r ON r.seq = m.seq AND r.until > $2

-- name: select_failures_for_export
-- The failed attempts of messages, oldest first.
-- Run by: export
-- In:  $1 seqs
-- Out: seq, attempt, at, outcome, worker, error, traceback
SELECT f.seq, f.attempt, f.at, f.outcome, CAST(f.worker AS BLOB), CAST(f.error AS BLOB), CAST(f.traceback AS BLOB)
FROM json_each($1) j CROSS JOIN tampu_failure f ON f.seq = j.value ORDER BY f.seq, f.no

-- name: page_idempotency_keys
-- A page of idempotency keys, in order.
-- Run by: export
-- In:  $1 scope, $2 name to continue after, $3 now, $4 limit
-- Out: name of the key, digest, until, seq, stamp, id, whether its window is open
SELECT CAST(key AS BLOB), digest, until, seq, seq >> 20, id, until > $3
FROM tampu_idempotency WHERE tenant = $1 AND key > CAST($2 AS TEXT) ORDER BY key LIMIT $4

-- name: import_messages
-- Stores imported messages. Ended and dead ones enter their index too.
-- Run by: import
-- In:  $1 q, rows: $2 seq, $3 created, $4 rank, $5 max_attempts, $6 expires, $7 id, $8 key, $9 group, $10 body,
--      $11 state number, $12 attempts, $13 when it ended, $14 reason
-- Out: nothing
INSERT INTO tampu_message (seq, q, rank, created, max_attempts, expires, key, lane, id, body)
VALUES ($2, $1, $4, $3, $5, $6, CAST($8 AS TEXT), CAST($9 AS TEXT), $7, $10);
INSERT INTO tampu_dead (seq, q, at, reason, attempts) SELECT $2, $1, $13, CAST($14 AS TEXT), $12 WHERE $11 = 5;
INSERT INTO tampu_ended (seq, q, state, at, attempts) SELECT $2, $1, $11, $13, $12 WHERE $11 IN (4, 6, 7)

-- name: insert_endings
-- Records endings.
-- Run by: import_endings
-- In:  $1 q, rows: $2 state number, $3 when, $4 seqs, $5 a new number
-- Out: nothing
INSERT INTO tampu_ending (q, state, no, at, seqs) VALUES ($1, $2, $5, $3, $4)

-- name: import_keys_and_expiries
-- Records expiries of waiting messages, and their keys, if no message here has the key.
-- Run by: import
-- In:  $1 q, rows: $2 seq, $3 expires or NULL, $4 key or NULL
-- Out: nothing
INSERT OR IGNORE INTO tampu_expiry (at, seq) SELECT $3, $2 WHERE $3 IS NOT NULL;
INSERT OR IGNORE INTO tampu_key (q, key, seq) SELECT $1, CAST($4 AS TEXT), $2 WHERE $4 IS NOT NULL

-- name: import_failures
-- Records failed attempts, oldest first.
-- Run by: import
-- In:  rows: $1 seq, $2 at, $3 attempt, $4 outcome, $5 worker, $6 error, $7 traceback
-- Out: nothing
INSERT INTO tampu_failure (seq, no, attempt, at, outcome, worker, error, traceback)
VALUES ($1, (SELECT coalesce(max(no), 0) + 1 FROM tampu_failure WHERE seq = $1), $3, $2,
  CAST($4 AS TEXT), CAST($5 AS TEXT), CAST($6 AS TEXT), CAST($7 AS TEXT))

-- name: import_idempotency_keys
-- Records idempotency keys. One that is in use here stays as it is.
-- Run by: import
-- In:  $1 scope, $2 now, rows: $3 name of an idempotency key, $4 seq, $5 not used, $6 until, $7 id, $8 digest
-- Out: nothing
INSERT INTO tampu_idempotency (tenant, key, seq, id, digest, until) VALUES ($1, CAST($3 AS TEXT), $4, $7, $8, $6)
ON CONFLICT (tenant, key) DO UPDATE
SET seq = excluded.seq, id = excluded.id, digest = excluded.digest, until = excluded.until WHERE until <= $2
