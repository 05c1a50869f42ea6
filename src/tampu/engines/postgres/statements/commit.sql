-- Statements of every commit: its beginning, its locks and numbers, the queues' numbers, and its last statement.

-- name: begin
-- Starts the commit: returns the time, numbers and the next due times, and sets what the transaction needs.
-- Does not use min(): on an empty table that may be planned as a scan, and the plan is kept.
-- Run by: every commit, first
-- In:  $1 now or NULL (then the server's time of the transaction), $2 whether numbers are wanted,
--      $3 whether to look for work that is due, $4 synchronous_commit: on unless the server has something stricter, or off,
--      $5 $6 $7 times before which no delay, lease or expiry is due; NULL: look from the beginning,
--      $8 milliseconds to wait for a lock, used if the user has not set a limit
-- Out: now, the first number of a block, when the next delay, lease and expiry are due, the settings made
SELECT coalesce($1::int8, (extract(epoch FROM transaction_timestamp()) * 1000000)::int8),
  CASE WHEN $2::boolean THEN nextval('tampu.number') END,
  CASE WHEN $3::boolean THEN (SELECT run_at FROM tampu.delayed WHERE run_at >= coalesce($5::int8, 0) ORDER BY run_at LIMIT 1) END,
  CASE WHEN $3::boolean THEN (SELECT until FROM tampu.claim WHERE until >= coalesce($6::int8, 0) ORDER BY until LIMIT 1) END,
  CASE WHEN $3::boolean THEN (SELECT at FROM tampu.expiry WHERE at >= coalesce($7::int8, 0) ORDER BY at LIMIT 1) END,
  CASE WHEN $4::text = 'off' OR current_setting('synchronous_commit') = 'off'
       THEN set_config('synchronous_commit', $4::text, true) END,
  CASE WHEN current_setting('lock_timeout') = '0' THEN set_config('lock_timeout', $8::text, true) END

-- name: join_user_transaction
-- Returns the time. The settings of the user's transaction are left alone.
-- Run by: every call inside a user's transaction, first
-- In:  $1 now or NULL (then the server's clock)
-- Out: now
SELECT coalesce($1::int8, (extract(epoch FROM clock_timestamp()) * 1000000)::int8)

-- name: acquire_locks
-- Locks what a batch will look up, until the end of the transaction, in the same order for all.
-- A statement's snapshot is older than the locks it waits for. So the look-up must be another statement after this one.
-- Run by: every commit that looks something up before it writes
-- In:  $1 names
-- Out: nothing of use
SELECT pg_advisory_xact_lock(h)
FROM (SELECT DISTINCT hashtextextended(encode(name, 'hex'), 7461) AS h FROM unnest($1::bytea[]) AS name ORDER BY 1) AS s

-- name: try_acquire_locks
-- As `acquire_locks`, without waiting: locks only what nobody else has locked.
-- Run by: sweep
-- In:  $1 names
-- Out: those that are locked now, until the end of the transaction
SELECT name FROM unnest($1::bytea[]) AS name WHERE pg_try_advisory_xact_lock(hashtextextended(encode(name, 'hex'), 7461))

-- name: allocate_numbers
-- Draws blocks of message numbers.
-- Run by: publish, import, when a commit needs more than one block
-- In:  $1 how many blocks
-- Out: the first number of each block, growing
SELECT nextval('tampu.number') FROM generate_series(1, $1::int8)

-- name: select_queue_number
-- Finds a queue by its name.
-- Run by: queue registry
-- In:  $1 tenant, $2 name
-- Out: the queue's number
SELECT q FROM tampu.queue WHERE tenant = $1::text AND name = $2::text

-- name: select_queue_name
-- Finds a queue by its number.
-- Run by: queue registry
-- In:  $1 q
-- Out: tenant, name
SELECT tenant, name FROM tampu.queue WHERE q = $1::int8

-- name: create_queue
-- Creates a queue, unless another process has created it meanwhile.
-- Run by: queue registry
-- In:  $1 tenant, $2 name
-- Out: the queue's number
INSERT INTO tampu.queue (tenant, name) VALUES ($1::text, $2::text)
ON CONFLICT (tenant, name) DO UPDATE SET name = excluded.name RETURNING q

-- name: list_queues
-- All queues.
-- Run by: list of queues
-- In:  nothing
-- Out: tenant, name, q
SELECT tenant, name, q FROM tampu.queue ORDER BY tenant, name

-- name: count_by_state
-- Counts the messages of a queue by their state.
-- Run by: publish to a queue with a limit
-- In:  $1 q
-- Out: state number, how many messages
SELECT kind, sum(n)::int8 FROM tampu.tally WHERE q = $1::int8 GROUP BY kind

-- name: write_commit
-- Writes what all verbs have in common: journal, counts, endings, and claims for the reaper.
-- The entry's number is drawn now, so it is greater than that of every commit this one has seen.
-- Run by: every commit that changed something, last
-- In:  $1 now; journal: $2 how many, $3 q, $4 body; counts: $5 q, $6 state number, $7 change;
--      endings: $8 q, $9 state number, $10 seqs; claims: $11 until, $12 lease, $13 seqs (all arrays)
-- Out: nothing
WITH entry AS MATERIALIZED (SELECT nextval('tampu.entry') AS no),
journaled AS (
  INSERT INTO tampu.journal_new (no, part, n, at, q, body)
  SELECT e.no, j.part, j.n, $1::int8, j.q, j.body
  FROM entry e, unnest($2::int8[], $3::int8[], $4::bytea[]) WITH ORDINALITY AS j(n, q, body, part)),
counted AS (
  INSERT INTO tampu.tally (q, kind, n)
  SELECT t.q, t.kind, t.n FROM unnest($5::int8[], $6::int8[], $7::int8[]) AS t(q, kind, n)),
over AS (
  INSERT INTO tampu.ending (q, state, no, at, seqs)
  SELECT d.q, d.state, e.no, $1::int8, d.seqs
  FROM entry e, unnest($8::int8[], $9::int8[], $10::bytea[]) AS d(q, state, seqs))
INSERT INTO tampu.claim (until, lease, seqs)
SELECT c.until, c.lease, c.seqs FROM unnest($11::int8[], $12::int8[], $13::bytea[]) AS c(until, lease, seqs)

-- name: schedule_reap
-- Has the reaper check leases when they end.
-- Run by: claim, extend
-- In:  arrays: $1 until, $2 lease, $3 seqs (eight bytes each)
-- Out: nothing
INSERT INTO tampu.claim (until, lease, seqs) SELECT * FROM unnest($1::int8[], $2::int8[], $3::bytea[])
ON CONFLICT (until, lease) DO UPDATE SET seqs = tampu.claim.seqs || excluded.seqs

-- name: fold_counts
-- Adds up rows of counts, so that stats read few rows. Skips rows that others are adding up.
-- Run by: some commits, after their work
-- In:  $1 limit
-- Out: nothing
WITH gone AS (
  DELETE FROM tampu.tally WHERE no = ANY (ARRAY(
    SELECT no FROM tampu.tally ORDER BY no LIMIT $1::int8 FOR UPDATE SKIP LOCKED))
  RETURNING q, kind, n)
INSERT INTO tampu.tally (q, kind, n) SELECT q, kind, sum(n) FROM gone GROUP BY q, kind HAVING sum(n) <> 0
