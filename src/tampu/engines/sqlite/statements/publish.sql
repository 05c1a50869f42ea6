-- Statements of publish and load. Those with `insert_` are used by other verbs too.

-- name: find_idempotency_keys
-- Finds the messages that were published with these idempotency keys.
-- Run by: publish, units
-- In:  $1 scope, $2 now, rows: $3 name of an idempotency key in it
-- Out: key, seq, stamp, id, digest of those whose window is open
SELECT CAST(key AS BLOB), seq, seq >> 20, id, digest FROM tampu_idempotency
WHERE tenant = $1 AND key = CAST($3 AS TEXT) AND until > $2

-- name: lock_keys
-- Finds the waiting messages that have these keys.
-- Run by: publish
-- In:  $1 q, rows: $2 key
-- Out: key, seq
SELECT CAST(key AS BLOB), seq FROM tampu_key WHERE q = $1 AND key = CAST($2 AS TEXT)

-- name: insert_messages
-- Stores messages. They enter an index afterwards.
-- Run by: publish
-- In:  $1 now, $2 not used, rows: $3 seq, $4 q, $5 rank, $6 max_attempts, $7 expires, $8 key, $9 group, $10 id,
--      $11 body
-- Out: nothing
INSERT INTO tampu_message (seq, q, rank, created, max_attempts, expires, key, lane, id, body)
VALUES ($3, $4, $5, $1, $6, $7, CAST($8 AS TEXT), CAST($9 AS TEXT), $10, $11)

-- name: insert_ready
-- Puts messages into the index of ready messages, each as a run of its own.
-- Run by: publish, settle, admin, sweep
-- In:  rows: $1 rank, $2 pos, $3 seq, $4 lease, $5 q, $6 attempts
-- Out: nothing
INSERT INTO tampu_ready (q, rank, pos, seq, attempts, lease, last) VALUES ($5, $1, $2, $3, $6, $4, $3)

-- name: insert_delayed
-- Puts messages into the index of delayed messages.
-- Run by: publish, settle, sweep
-- In:  rows: $1 seq, $2 run_at, $3 lease, $4 q, $5 attempts
-- Out: nothing
INSERT INTO tampu_delayed (seq, q, run_at, attempts, lease) VALUES ($1, $4, $2, $5, $3)

-- name: insert_held
-- Puts messages into the index of held messages.
-- Run by: publish, import, groups, release with a hold
-- In:  rows: $1 seq, $2 run_at, $3 lease, $4 q, $5 attempts, $6 group it waits for or NULL, $7 reason
-- Out: nothing
INSERT INTO tampu_held (seq, q, lane, reason, run_at, attempts, lease)
VALUES ($1, $4, CAST($6 AS TEXT), CAST($7 AS TEXT), $2, $5, $3)

-- name: replace_bodies
-- Replaces the bodies of waiting messages.
-- Run by: publish of a key that waits, free with bodies
-- In:  rows: $1 seq, $2 body
-- Out: nothing
UPDATE tampu_message SET body = $2 WHERE seq = $1

-- name: insert_correlation_words
-- Records the correlation ids of messages.
-- Run by: publish, free with bodies, import
-- In:  $1 hashes of tenant and correlation id, one after the other, $2 a list: seqs
-- Out: nothing
INSERT OR IGNORE INTO tampu_correlation (word, seq) SELECT substr($1, 16 * key + 1, 16), value FROM json_each($2)

-- name: upsert_idempotency_keys
-- Records which message an idempotency key refers to.
-- Run by: publish, units
-- In:  $1 scope, rows: $2 name of an idempotency key, $3 seq, $4 not used, $5 until, $6 id, $7 digest
-- Out: nothing
INSERT OR REPLACE INTO tampu_idempotency (tenant, key, seq, id, digest, until)
VALUES ($1, CAST($2 AS TEXT), $3, $6, $7, $5)

-- name: find_loaded_ids
-- Finds which ids of a range are in use, and where.
-- Run by: bulk load
-- In:  $1 tenant, $2 first and $3 last id of the range (16 bytes each)
-- Out: (id, name of its queue) of those in the range that exist in the tenant
SELECT m.id, u.name FROM tampu_message m CROSS JOIN tampu_queue u ON u.q = m.q
WHERE m.id BETWEEN $2 AND $3 AND u.tenant = $1

-- name: insert_plain
-- Stores messages without key, expiry, group and id of their own. NULL columns are left out: sqlite3 looks for an
-- adapter of every None, which makes a row cost 8 µs instead of 2.
-- Run by: publish of plain messages
-- In:  $1 seq, $2 q, $3 rank, $4 created, $5 max_attempts, $6 body
-- Out: nothing
INSERT INTO tampu_message (seq, q, rank, created, max_attempts, body) VALUES ($1, $2, $3, $4, $5, $6)

-- name: insert_copies
-- Stores the same messages in several queues, from one value with all bodies, which SQLite cuts.
-- Run by: publish of copies, and of messages that end as they are stored
-- In:  $1 first seq, $2 how far the first seqs of two queues are apart, $3 now, $4 max_attempts, $5 bodies,
--      $6 a list: queues, $7 a list: start of each body << 31 | its length
-- Out: nothing
INSERT INTO tampu_message (seq, q, rank, created, max_attempts, body)
SELECT $1 + $2 * u.key + 2 * b.key, u.value, 0, $3, $4, substr($5, (b.value >> 31) + 1, b.value & 0x7fffffff)
FROM json_each($6) AS u CROSS JOIN json_each($7) AS b

-- name: insert_ended_at_once
-- Puts messages of one queue into the index of ended messages.
-- Run by: publish of messages that end as they are stored
-- In:  $1 q, $2 state number, $3 now, $4 a list: seqs
-- Out: nothing
INSERT INTO tampu_ended (seq, q, state, at, attempts) SELECT value, $1, $2, $3, 0 FROM json_each($4)

-- name: insert_plain_with_id
-- As `insert_plain`, for messages with an id that the user gave.
-- Run by: publish of plain messages
-- In:  $1 seq, $2 q, $3 rank, $4 created, $5 max_attempts, $6 id, $7 body
-- Out: nothing
INSERT INTO tampu_message (seq, q, rank, created, max_attempts, id, body) VALUES ($1, $2, $3, $4, $5, $6, $7)

-- name: any_id_exists
-- Looks up fifty ids, of all tenants.
-- Run by: publish of plain messages with ids that users gave
-- In:  $1 to $50 ids; the last is repeated if there are fewer
-- Out: a row if one exists
SELECT 1 FROM tampu_message WHERE id IN (
  $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17,
  $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34,
  $35, $36, $37, $38, $39, $40, $41, $42, $43, $44, $45, $46, $47, $48, $49, $50
) LIMIT 1

-- name: set_expires
-- Sets the expiry of messages that are stored already.
-- Run by: publish of plain messages
-- In:  $1 expires, $2 seq
-- Out: nothing
UPDATE tampu_message SET expires = $1 WHERE seq = $2

-- name: insert_expiry
-- Has the sweep look at messages when they expire.
-- Run by: publish of plain messages
-- In:  $1 expires, $2 seq
-- Out: nothing
INSERT INTO tampu_expiry VALUES ($1, $2)

-- name: find_batch
-- Finds a batch by its name.
-- Run by: publish with a batch id
-- In:  $1 tenant and queue, $2 name, $3 now
-- Out: seqs (packed), digest of the payloads
SELECT digest, id FROM tampu_idempotency WHERE tenant = $1 AND key = $2 AND until > $3

-- name: insert_batch
-- Records the name of a batch.
-- Run by: publish with a batch id
-- In:  $1 tenant and queue, $2 name, $3 digest of the payloads, $4 seqs (packed), $5 until
-- Out: nothing
INSERT OR REPLACE INTO tampu_idempotency (tenant, key, seq, id, digest, until) VALUES ($1, $2, 0, $3, $4, $5)

-- name: insert_loaded
-- Stores messages with ids that the user gave, from one value with all bodies, which SQLite cuts.
-- Run by: bulk load
-- In:  $1 first seq, $2 q, $3 now, $4 max_attempts, $5 ids, $6 bodies, $7 a list: start of each body << 31 | its length
-- Out: nothing
INSERT INTO tampu_message (seq, q, rank, created, max_attempts, id, body)
SELECT $1 + 2 * key, $2, 0, $3, $4, substr($5, 16 * key + 1, 16),
  substr($6, (value >> 31) + 1, value & 0x7fffffff) FROM json_each($7)
