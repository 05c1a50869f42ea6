-- Statements of publish, and of loading many messages at once. Those with `insert_` are used by other verbs too.

-- name: publish_simple
-- Stores simple messages of one queue, ready at rank 0.
-- Run by: publish
-- In:  $1 q, $2 now, $3 how far ids are ahead of now or NULL, $4 max_attempts, $5 seqs, $6 bodies
-- Out: nothing
INSERT INTO tampu_message (seq, created, place, q, max_attempts, ahead, body) VALUES {($5, $2, 0, $1, $4, $3, $6)};
INSERT INTO tampu_ready (q, place, pos, seq, attempts) VALUES {($1, 0, $5, $5, 0)}

-- name: insert_unkeyed_messages
-- Stores messages without key, group or given id. They enter an index afterwards.
-- Run by: publish_without_lookup
-- In:  $1 now, $2 how far ids are ahead of now or NULL, columns: $3 seq, $4 q, $5 rank, $6 max_attempts,
--      $7 expires, $8 body
-- Out: nothing
INSERT INTO tampu_message (seq, created, place, q, max_attempts, expires, ahead, body)
VALUES {($3, $1, $5, $4, $6, $7, $2, $8)}

-- name: find_idempotency_keys
-- Finds the messages that were published with these idempotency keys.
-- Run by: publish
-- In:  $1 scope, $2 now, $3 names of idempotency keys in it
-- Out: key, seq, stamp, id, digest of those whose window is open
SELECT word, seq, stamp, id, digest FROM tampu_idempotency FORCE INDEX (PRIMARY)
WHERE tenant = $1 AND word IN ($3) AND until > $2

-- name: lock_keys
-- Finds and locks the waiting messages that have these keys. A claim of one waits for this, or this for it.
-- Run by: publish
-- In:  $1 q, $2 keys
-- Out: key, seq
SELECT word, seq FROM tampu_key FORCE INDEX (PRIMARY) WHERE (q, word) IN ({($1, $2)}) FOR UPDATE

-- name: insert_messages
-- Stores messages. They enter an index afterwards.
-- Run by: publish
-- In:  $1 now, $2 how far ids are ahead of now or NULL, columns: $3 seq, $4 q, $5 rank, $6 max_attempts,
--      $7 expires, $8 key, $9 group, $10 id, $11 body
-- Out: nothing
INSERT INTO tampu_message (seq, created, place, q, max_attempts, expires, ahead, id, word, lane, body)
VALUES {($3, $1, $5, $4, $6, $7, $2, $10, $8, $9, $11)}

-- name: insert_own_ids
-- Records the ids that users gave to their messages.
-- Run by: insert_messages, import_messages
-- In:  columns: $1 id, $2 seq
-- Out: nothing
INSERT INTO tampu_own_id (id, seq) VALUES {($1, $2)}

-- name: insert_ready
-- Puts messages into the index of ready messages.
-- Run by: publish, settle, admin, sweep
-- In:  columns: $1 rank, $2 pos, $3 seq, $4 lease, $5 q, $6 attempts
-- Out: nothing
INSERT INTO tampu_ready (q, place, pos, seq, lease, attempts) VALUES {($5, $1, $2, $3, $4, $6)}

-- name: insert_placed
-- Records where a ready message is that the primary key of `ready` does not find.
-- Run by: insert_ready
-- In:  columns: $1 q, $2 seq, $3 rank, $4 pos
-- Out: nothing
INSERT INTO tampu_placed (q, seq, place, pos) VALUES {($1, $2, $3, $4)}

-- name: insert_delayed
-- Puts messages into the index of delayed messages.
-- Run by: publish, settle, sweep
-- In:  columns: $1 seq, $2 run_at, $3 lease, $4 q, $5 attempts
-- Out: nothing
INSERT INTO tampu_delayed (seq, run_at, lease, q, attempts) VALUES {($1, $2, $3, $4, $5)}

-- name: insert_expiries
-- Records when waiting messages expire.
-- Run by: publish_without_lookup, import_keys_and_expiries
-- In:  columns: $1 expires, $2 seq
-- Out: nothing
INSERT INTO tampu_expiry (at, seq) VALUES {($1, $2)}

-- name: insert_held
-- Puts messages into the index of held messages.
-- Run by: publish, import, groups, release with a hold
-- In:  columns: $1 seq, $2 run_at, $3 lease, $4 q, $5 attempts, $6 group it waits for or NULL, $7 reason
-- Out: nothing
INSERT INTO tampu_held (seq, run_at, lease, q, attempts, lane, reason) VALUES {($1, $2, $3, $4, $5, $6, $7)}

-- name: replace_bodies
-- Replaces the bodies of waiting messages.
-- Run by: publish of a key that waits, free with bodies
-- In:  columns: $1 seq, $2 body
-- Out: nothing
UPDATE tampu_message FORCE INDEX (PRIMARY) SET body = ELT(FIELD(seq, $1), $2) WHERE seq IN ($1)

-- name: insert_correlations
-- Records the correlation ids of messages.
-- Run by: publish, free with bodies, import
-- In:  columns: $1 hash of tenant and correlation id, $2 seq
-- Out: nothing
INSERT IGNORE INTO tampu_correlation (word, seq) VALUES {($1, $2)}

-- name: upsert_idempotency_keys
-- Records which message an idempotency key refers to.
-- Run by: publish
-- In:  $1 scope, columns: $2 name of an idempotency key, $3 seq, $4 stamp, $5 until, $6 id, $7 digest
-- Out: nothing
INSERT INTO tampu_idempotency (tenant, word, seq, stamp, until, id, digest) VALUES {($1, $2, $3, $4, $5, $6, $7)}
ON DUPLICATE KEY UPDATE seq = VALUES(seq), stamp = VALUES(stamp), until = VALUES(until), id = VALUES(id),
  digest = VALUES(digest)

-- name: find_loaded_ids
-- Finds which ids of a range are in use, and where.
-- Run by: bulk load
-- In:  $1 tenant, $2 first and $3 last id of the range (16 bytes each)
-- Out: (id, name of its queue) of those in the range that exist in the tenant
SELECT i.id, u.name FROM tampu_own_id i FORCE INDEX (PRIMARY)
STRAIGHT_JOIN tampu_message m FORCE INDEX (PRIMARY) ON m.seq = i.seq
STRAIGHT_JOIN tampu_queue u FORCE INDEX (PRIMARY) ON u.q = m.q
WHERE i.id BETWEEN $2 AND $3 AND u.tenant = $1

-- name: insert_loaded
-- Stores messages of one queue with given ids, ready at rank 0.
-- Run by: bulk load
-- In:  $1 q, $2 now, $3 how far ids are ahead of now or NULL, $4 max_attempts, columns: $5 seq, $6 id, $7 body
-- Out: nothing
INSERT INTO tampu_message (seq, created, place, q, max_attempts, ahead, id, body)
VALUES {($5, $2, 0, $1, $4, $3, $6, $7)};
INSERT INTO tampu_own_id (id, seq) VALUES {($6, $5)};
INSERT INTO tampu_ready (q, place, pos, seq, attempts) VALUES {($1, 0, $5, $5, 0)}
