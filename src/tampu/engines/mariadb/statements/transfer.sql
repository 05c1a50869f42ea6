-- Statements that import and export messages, for moving them between stores.

-- name: select_for_export
-- What an export needs of messages, besides `select_messages`.
-- Run by: export
-- In:  $1 seqs, $2 now or NULL (then the server's clock)
-- Out: seq, rank, group, whether it waits for a slot of its group, whether its key refers to it, result, until when
SELECT m.seq, m.place, m.lane, h.lane IS NOT NULL, k.seq IS NOT NULL, r.body, r.until
FROM tampu_message m FORCE INDEX (PRIMARY)
LEFT JOIN tampu_held h FORCE INDEX (PRIMARY) ON h.seq = m.seq
LEFT JOIN tampu_key k FORCE INDEX (PRIMARY) ON k.q = m.q AND k.word = m.word AND k.seq = m.seq
LEFT JOIN tampu_result r FORCE INDEX (PRIMARY) ON r.seq = m.seq
  AND r.until > COALESCE($2, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
WHERE m.seq IN ($1)

-- name: select_failures_for_export
-- The failed attempts of messages, oldest first.
-- Run by: export
-- In:  $1 seqs
-- Out: seq, attempt, at, outcome, worker, error, traceback
SELECT seq, attempt, at, outcome, worker, error, traceback FROM tampu_failure FORCE INDEX (PRIMARY)
WHERE seq IN ($1) ORDER BY seq, no

-- name: page_idempotency_keys
-- A page of idempotency keys, in order.
-- Run by: export
-- In:  $1 scope, $2 name to continue after, $3 now or NULL (then the server's clock), $4 limit
-- Out: name of the key, digest, until, seq, stamp, id, whether its window is open
SELECT word, digest, until, seq, stamp, id,
  until > COALESCE($3, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
FROM tampu_idempotency FORCE INDEX (PRIMARY) WHERE tenant = $1 AND word > $2 ORDER BY word LIMIT $4

-- name: import_messages
-- Stores imported messages. They enter an index afterwards.
-- Run by: import
-- In:  $1 q, columns: $2 seq, $3 created, $4 rank, $5 max_attempts, $6 expires, $7 id, $8 key, $9 group, $10 body
-- Out: nothing
INSERT INTO tampu_message (seq, created, place, q, max_attempts, expires, id, word, lane, body)
VALUES {($2, $3, $4, $1, $5, $6, $7, $8, $9, $10)}

-- name: import_dead
-- Puts imported messages into the index of dead messages.
-- Run by: import_messages
-- In:  $1 q, columns: $2 seq, $3 when, $4 attempts, $5 reason
-- Out: nothing
INSERT INTO tampu_dead (seq, at, q, attempts, reason) VALUES {($2, $3, $1, $4, $5)}

-- name: import_ended
-- Puts imported messages into the index of ended messages.
-- Run by: import_messages
-- In:  $1 q, columns: $2 seq, $3 when, $4 attempts, $5 state number
-- Out: nothing
INSERT INTO tampu_ended (seq, at, q, attempts, state) VALUES {($2, $3, $1, $4, $5)}

-- name: import_endings
-- Records imported endings, oldest first. Each gets a new entry number, because it ended in no commit of this store.
-- Run by: import
-- In:  $1 q, columns: $2 state number, $3 when, $4 seqs
-- Out: nothing
INSERT INTO tampu_ending (q, state, no, at, seqs) VALUES {($1, $2, NEXTVAL(tampu_entry), $3, $4)}

-- name: import_keys
-- Records keys of waiting messages, if no message here has the key.
-- Run by: import_keys_and_expiries
-- In:  $1 q, columns: $2 key, $3 seq
-- Out: nothing
INSERT INTO tampu_key (q, word, seq) VALUES {($1, $2, $3)} ON DUPLICATE KEY UPDATE seq = tampu_key.seq

-- name: import_failures
-- Records failed attempts, oldest first.
-- Run by: import
-- In:  columns: $1 seq, $2 at, $3 attempt, $4 outcome, $5 worker, $6 error, $7 traceback
-- Out: nothing
INSERT INTO tampu_failure (seq, no, at, attempt, outcome, worker, error, traceback)
VALUES {($1, NEXTVAL(tampu_entry), $2, $3, $4, $5, $6, $7)}

-- name: import_idempotency_keys
-- Records idempotency keys. One that is in use here stays as it is. Its window is set last: the others read it.
-- Run by: import
-- In:  $1 scope, $2 now, columns: $3 name of an idempotency key, $4 seq, $5 stamp, $6 until, $7 id, $8 digest
-- Out: nothing
INSERT INTO tampu_idempotency (tenant, word, seq, stamp, until, id, digest) VALUES {($1, $3, $4, $5, $6, $7, $8)}
ON DUPLICATE KEY UPDATE seq = IF(until <= $2, VALUES(seq), seq), stamp = IF(until <= $2, VALUES(stamp), stamp),
  id = IF(until <= $2, VALUES(id), id), digest = IF(until <= $2, VALUES(digest), digest),
  until = IF(until <= $2, VALUES(until), until)
