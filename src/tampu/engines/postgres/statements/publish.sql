-- Statements of publish, and of loading many messages at once. Those with `insert_` are used by other verbs too.

-- name: publish_in_one_statement
-- A whole commit: stores simple messages of one queue, ready at rank 0.
-- Run by: publish of simple messages to one queue
-- In:  $1 q, $2 now or NULL (then the server's), $3 synchronous_commit (see begin), $4 millisecond of the newest id known,
--      $5 max_attempts, $6 bodies, at most 1024, $7 $8 $9 the journal's record before the first number, between it
--      and the millisecond of the ids, and after that
-- Out: now, the first number
WITH t AS MATERIALIZED (
  SELECT coalesce($2::int8, (extract(epoch FROM transaction_timestamp()) * 1000000)::int8) AS now,
    nextval('tampu.number') AS first, nextval('tampu.entry') AS no, cardinality($6::bytea[]) AS n,
    CASE WHEN $3::text = 'off' OR current_setting('synchronous_commit') = 'off'
         THEN set_config('synchronous_commit', $3::text, true) END),
s AS MATERIALIZED (SELECT greatest(now / 1000, $4::int8) AS stamp FROM t),
stored AS (
  INSERT INTO tampu.message (seq, created, rank, q, max_attempts, ahead, body)
  SELECT (SELECT first FROM t) + i.place - 1, (SELECT now FROM t), 0, $1::int8, $5::int8,
    (SELECT nullif(s.stamp - t.now / 1000, 0) FROM t, s), i.body
  FROM unnest($6::bytea[]) WITH ORDINALITY AS i(body, place)),
put AS (
  INSERT INTO tampu.ready (rank, pos, seq, q, attempts)
  SELECT 0, i.seq, i.seq, $1::int8, 0 FROM t, generate_series(t.first, t.first + t.n - 1) AS i(seq)),
journaled AS (
  INSERT INTO tampu.journal_new (no, part, n, at, q, body)
  SELECT t.no, 1, t.n, t.now, $1::int8, $7::bytea || int8send(t.first) || $8::bytea || int8send(s.stamp) || $9::bytea
  FROM t, s),
counted AS (INSERT INTO tampu.tally (q, kind, n) SELECT $1::int8, 0, t.n FROM t)
SELECT now, first FROM t

-- name: publish_simple
-- Stores simple messages of one queue, ready at rank 0.
-- Run by: publish
-- In:  $1 q, $2 now, $3 how far ids are ahead of now or NULL, $4 max_attempts, $5 seqs, $6 bodies
-- Out: nothing
WITH item AS (SELECT * FROM unnest($5::int8[], $6::bytea[]) AS i(seq, body)),
stored AS (
  INSERT INTO tampu.message (seq, created, rank, q, max_attempts, ahead, body)
  SELECT seq, $2::int8, 0, $1::int8, $4::int8, $3::int8, body FROM item)
INSERT INTO tampu.ready (rank, pos, seq, q, attempts) SELECT 0, seq, seq, $1::int8, 0 FROM unnest($5::int8[]) AS s(seq)

-- name: publish_copies
-- Stores the same simple messages in several queues, ready at rank 0.
-- Run by: publish of copies
-- In:  $1 now, $2 how far ids are ahead of now or NULL, $3 max_attempts, $4 queues, $5 seqs: as many for each queue as
--      there are bodies, $6 bodies
-- Out: nothing
WITH stored AS (
  INSERT INTO tampu.message (seq, created, rank, q, max_attempts, ahead, body)
  SELECT ($5::int8[])[(u.no - 1) * cardinality($6::bytea[]) + i.place], $1::int8, 0, u.q, $3::int8, $2::int8, i.body
  FROM unnest($4::int8[]) WITH ORDINALITY AS u(q, no)
  CROSS JOIN unnest($6::bytea[]) WITH ORDINALITY AS i(body, place))
INSERT INTO tampu.ready (rank, pos, seq, q, attempts)
SELECT 0, s.seq, s.seq, ($4::int8[])[(s.place - 1) / cardinality($6::bytea[]) + 1], 0
FROM unnest($5::int8[]) WITH ORDINALITY AS s(seq, place)

-- name: publish_ended
-- Stores messages of one queue that end at once.
-- Run by: publish of messages that end as they are stored
-- In:  $1 q, $2 now, $3 how far ids are ahead of now or NULL, $4 max_attempts, $5 state number, $6 seqs, $7 bodies
-- Out: nothing
WITH stored AS (
  INSERT INTO tampu.message (seq, created, rank, q, max_attempts, ahead, body)
  SELECT seq, $2::int8, 0, $1::int8, $4::int8, $3::int8, body FROM unnest($6::int8[], $7::bytea[]) AS i(seq, body))
INSERT INTO tampu.ended (seq, at, q, attempts, state)
SELECT seq, $2::int8, $1::int8, 0, $5::int8 FROM unnest($6::int8[]) AS s(seq)

-- name: publish_without_lookup
-- Stores messages that need no look-up: ready or delayed, with or without expiry.
-- Run by: publish
-- In:  $1 now, $2 how far ids are ahead of now or NULL, arrays: $3 seq, $4 q, $5 rank, $6 max_attempts,
--      $7 expires, $8 run_at (NULL: ready), $9 body
-- Out: nothing
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

-- name: find_idempotency_keys
-- Finds the messages that were published with these idempotency keys.
-- Run by: publish
-- In:  $1 scope, $2 now, $3 names of idempotency keys in it
-- Out: key, seq, stamp, id, digest of those whose window is open
SELECT d.key, d.seq, d.stamp, d.id, d.digest FROM unnest($3::bytea[]) AS i(key) CROSS JOIN LATERAL (
  SELECT * FROM tampu.idempotency d WHERE d.tenant = $1::text AND d.key = i.key OFFSET 0) AS d
WHERE d.until > $2::int8

-- name: lock_keys
-- Finds and locks the waiting messages that have these keys. A claim of one waits for this, or this for it.
-- Run by: publish
-- In:  $1 q, $2 keys, sorted, so that all lock in one order
-- Out: key, seq
SELECT k.key, k.seq FROM unnest($2::bytea[]) AS i(key) CROSS JOIN LATERAL (
  SELECT k.key, k.seq FROM tampu.key k WHERE k.q = $1::int8 AND k.key = i.key OFFSET 0 FOR UPDATE) AS k

-- name: insert_messages
-- Stores messages. They enter an index afterwards.
-- Run by: publish
-- In:  $1 now, $2 how far ids are ahead of now or NULL, arrays: $3 seq, $4 q, $5 rank, $6 max_attempts,
--      $7 expires, $8 key, $9 group, $10 id, $11 body
-- Out: nothing
INSERT INTO tampu.message (seq, created, rank, q, max_attempts, expires, ahead, id, key, lane, body)
SELECT seq, $1::int8, rank, q, max_attempts, expires, $2::int8, id, key, lane, body
FROM unnest($3::int8[], $4::int8[], $5::int8[], $6::int8[], $7::int8[], $8::bytea[], $9::bytea[], $10::uuid[],
  $11::bytea[]) AS i(seq, q, rank, max_attempts, expires, key, lane, id, body)

-- name: insert_ready
-- Puts messages into the index of ready messages.
-- Run by: publish, settle, admin, sweep
-- In:  arrays: $1 rank, $2 pos, $3 seq, $4 lease, $5 q, $6 attempts
-- Out: nothing
INSERT INTO tampu.ready (rank, pos, seq, lease, q, attempts)
SELECT * FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::int8[], $5::int8[], $6::int8[])

-- name: insert_delayed
-- Puts messages into the index of delayed messages.
-- Run by: publish, settle, sweep
-- In:  arrays: $1 seq, $2 run_at, $3 lease, $4 q, $5 attempts
-- Out: nothing
INSERT INTO tampu.delayed (seq, run_at, lease, q, attempts)
SELECT * FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::int8[], $5::int8[])

-- name: insert_held
-- Puts messages into the index of held messages.
-- Run by: publish, import, groups, release with a hold
-- In:  arrays: $1 seq, $2 run_at, $3 lease, $4 q, $5 attempts, $6 group it waits for or NULL, $7 reason
-- Out: nothing
INSERT INTO tampu.held (seq, run_at, lease, q, attempts, lane, reason)
SELECT * FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::int8[], $5::int8[], $6::bytea[], $7::bytea[])

-- name: replace_bodies
-- Replaces the bodies of waiting messages.
-- Run by: publish of a key that waits, free with bodies
-- In:  arrays: $1 seq, $2 body
-- Out: nothing
UPDATE tampu.message SET body = ($2::bytea[])[array_position($1::int8[], seq)] WHERE seq = ANY ($1::int8[])

-- name: insert_correlations
-- Records the correlation ids of messages.
-- Run by: publish, free with bodies, import
-- In:  arrays: $1 hash of tenant and correlation id, $2 seq
-- Out: nothing
INSERT INTO tampu.correlation (word, seq) SELECT * FROM unnest($1::bytea[], $2::int8[]) ON CONFLICT DO NOTHING

-- name: upsert_idempotency_keys
-- Records which message an idempotency key refers to.
-- Run by: publish
-- In:  $1 scope, arrays: $2 name of an idempotency key, $3 seq, $4 stamp, $5 until, $6 id, $7 digest
-- Out: nothing
INSERT INTO tampu.idempotency (tenant, key, seq, stamp, until, id, digest)
SELECT $1::text, key, seq, stamp, until, id, digest
FROM unnest($2::bytea[], $3::int8[], $4::int8[], $5::int8[], $6::uuid[], $7::bytea[])
  AS i(key, seq, stamp, until, id, digest)
ON CONFLICT (tenant, key) DO UPDATE
SET seq = excluded.seq, stamp = excluded.stamp, until = excluded.until, id = excluded.id, digest = excluded.digest

-- name: acquire_shared_locks
-- Shared lock for a load that has a document: several of them may use one id prefix at the same time.
-- A load without a document (see `acquire_locks`) waits for them, and they wait for it.
-- Run by: bulk load
-- In:  $1 names
-- Out: nothing of use
SELECT pg_advisory_xact_lock_shared(h)
FROM (SELECT DISTINCT hashtextextended(encode(name, 'hex'), 7461) AS h FROM unnest($1::bytea[]) AS name ORDER BY 1) AS s

-- name: find_loaded_ids
-- Finds which ids of a range are in use, and where.
-- Run by: bulk load
-- In:  $1 tenant, $2 first and $3 last id of the range (16 bytes each)
-- Out: (id, name of its queue) of those in the range that exist in the tenant
WITH found AS MATERIALIZED (
  SELECT id, q FROM tampu.message
  WHERE id BETWEEN encode($2::bytea, 'hex')::uuid AND encode($3::bytea, 'hex')::uuid)
SELECT f.id, u.name FROM found f JOIN tampu.queue u ON u.q = f.q WHERE u.tenant = $1::text

-- name: insert_loaded
-- Stores messages of one queue with given ids, ready at rank 0.
-- Run by: bulk load
-- In:  $1 q, $2 now, $3 how far ids are ahead of now or NULL, $4 max_attempts, arrays: $5 seq, $6 id, $7 body
-- Out: nothing
WITH stored AS (
  INSERT INTO tampu.message (seq, created, rank, q, max_attempts, ahead, id, body)
  SELECT seq, $2::int8, 0, $1::int8, $4::int8, $3::int8, id, body
  FROM unnest($5::int8[], $6::uuid[], $7::bytea[]) AS i(seq, id, body))
INSERT INTO tampu.ready (rank, pos, seq, q, attempts) SELECT 0, seq, seq, $1::int8, 0 FROM unnest($5::int8[]) AS s(seq)

-- name: copy_messages
-- Stores messages with given ids, ready at rank 0; `copy_ready` follows. COPY cannot be pipelined.
-- Run by: bulk load by Spark
-- In:  rows in PostgreSQL's binary form
-- Out: nothing
COPY tampu.message (seq, created, rank, q, max_attempts, ahead, id, body) FROM STDIN (FORMAT binary)

-- name: copy_ready
-- Puts the messages into the index of ready messages.
-- Run by: bulk load by Spark, after `copy_messages`
-- In:  rows in PostgreSQL's binary form
-- Out: nothing
COPY tampu.ready (rank, pos, seq, q, attempts) FROM STDIN (FORMAT binary)
