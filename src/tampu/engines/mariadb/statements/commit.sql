-- Statements of every commit: its beginning, its locks and numbers, the queues' numbers, and its last statement.

-- name: begin
-- Starts the commit, after START TRANSACTION: returns the time, numbers and the next due times.
-- One column, because PyMySQL reads a description of each.
-- Run by: every commit, first
-- In:  $1 now or NULL (then the server's time), $2 whether numbers are wanted, $3 whether to look for work that is due
-- Out: one text: now, the first number of a block, when the next delay, lease and expiry are due, or nothing
SELECT CONCAT_WS(' ', COALESCE($1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))),
  CASE WHEN $2 THEN NEXTVAL(tampu_number) ELSE '' END,
  CASE WHEN $3 THEN COALESCE((SELECT run_at FROM tampu_delayed FORCE INDEX (due) ORDER BY run_at LIMIT 1), '') END,
  CASE WHEN $3 THEN COALESCE((SELECT until FROM tampu_claim FORCE INDEX (PRIMARY) ORDER BY until LIMIT 1), '') END,
  CASE WHEN $3 THEN COALESCE((SELECT at FROM tampu_expiry FORCE INDEX (PRIMARY) ORDER BY at LIMIT 1), '') END)

-- name: join_user_transaction
-- Returns the time.
-- Run by: every call inside a user's transaction, first
-- In:  $1 now or NULL (then the server's)
-- Out: now
SELECT COALESCE($1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))

-- name: acquire_locks
-- Locks what a batch will look up, until the end of the transaction, in the same order for all (the primary key's).
-- The look-up is another statement: its snapshot must be newer than the locks.
-- Run by: every commit that looks something up before it writes
-- In:  $1 numbers of latches
-- Out: nothing of use
SELECT n FROM tampu_latch FORCE INDEX (PRIMARY) WHERE n IN ($1) ORDER BY n FOR UPDATE

-- name: try_acquire_locks
-- As `acquire_locks`, without waiting: locks only what nobody else has locked.
-- Run by: sweep
-- In:  $1 numbers of latches
-- Out: those that are locked now, until the end of the transaction
SELECT n FROM tampu_latch FORCE INDEX (PRIMARY) WHERE n IN ($1) ORDER BY n FOR UPDATE SKIP LOCKED

-- name: allocate_numbers
-- Draws blocks of message numbers.
-- Run by: publish, import, when a commit needs more than one block
-- In:  nothing
-- Out: the first number of a block
SELECT NEXTVAL(tampu_number)

-- name: select_queue_number
-- Finds a queue by its name.
-- Run by: queue registry
-- In:  $1 tenant, $2 name
-- Out: the queue's number
SELECT q FROM tampu_queue WHERE tenant = $1 AND name = $2

-- name: select_queue_name
-- Finds a queue by its number.
-- Run by: queue registry
-- In:  $1 q
-- Out: tenant, name
SELECT tenant, name FROM tampu_queue WHERE q = $1

-- name: create_queue
-- Creates a queue, unless another process has created it meanwhile.
-- Run by: queue registry
-- In:  $1 tenant, $2 name
-- Out: the queue's number
INSERT INTO tampu_queue (tenant, name) VALUES ($1, $2) ON DUPLICATE KEY UPDATE q = q RETURNING q

-- name: list_queues
-- All queues.
-- Run by: list of queues
-- In:  nothing
-- Out: tenant, name, q
SELECT tenant, name, q FROM tampu_queue FORCE INDEX (tenant_name) ORDER BY tenant, name

-- name: count_by_state
-- Counts the messages of a queue by their state.
-- Run by: publish to a queue with a limit
-- In:  $1 q
-- Out: state number, how many messages
SELECT kind, CAST(SUM(n) AS SIGNED) FROM tampu_tally FORCE INDEX (of_queue) WHERE q = $1 GROUP BY kind

-- name: insert_journal
-- Writes the first record of this commit to the journal.
-- The entry's number is drawn now, so it is greater than that of every commit this one has seen.
-- Run by: write_commit
-- In:  $1 now, $2 how many transitions, $3 q, $4 body of the first record
-- Out: nothing
INSERT INTO tampu_journal_new (no, part, n, at, q, body) VALUES (NEXTVAL(tampu_entry), 1, $2, $1, $3, $4)

-- name: insert_journal_rest
-- Writes the other records of the entry that `insert_journal` began.
-- Run by: write_commit
-- In:  $1 now, columns: $2 part of the entry, $3 how many transitions, $4 q, $5 body
-- Out: nothing
INSERT INTO tampu_journal_new (no, part, n, at, q, body) VALUES {(LASTVAL(tampu_entry), $2, $3, $1, $4, $5)}

-- name: draw_entry_number
-- Draws the number of an entry without records, for `insert_endings`.
-- Run by: write_commit
-- In:  nothing
-- Out: nothing of use
SELECT NEXTVAL(tampu_entry)

-- name: insert_counts
-- Records how the numbers of messages by state change.
-- Run by: write_commit
-- In:  columns: $1 q, $2 state number, $3 change
-- Out: nothing
INSERT INTO tampu_tally (q, kind, n) VALUES {($1, $2, $3)}

-- name: insert_endings
-- Records which messages ended in this commit, after `insert_journal` or `draw_entry_number`.
-- Run by: write_commit
-- In:  $1 now, columns: $2 q, $3 state number, $4 seqs
-- Out: nothing
INSERT INTO tampu_ending (q, state, no, at, seqs) VALUES {($2, $3, LASTVAL(tampu_entry), $1, $4)}

-- name: schedule_reap
-- Has the reaper check leases when they end.
-- Run by: write_commit, extend
-- In:  columns: $1 until, $2 lease, $3 seqs (eight bytes each, or packed)
-- Out: nothing
INSERT INTO tampu_claim (until, lease, seqs) VALUES {($1, $2, $3)}
ON DUPLICATE KEY UPDATE seqs = CONCAT(seqs, VALUES(seqs))

-- name: lock_counts
-- Locks rows of counts to add up. Skips those that others are adding up.
-- Run by: fold_counts
-- In:  $1 limit
-- Out: no, q, state number, change
SELECT no, q, kind, n FROM tampu_tally FORCE INDEX (PRIMARY) ORDER BY no LIMIT $1 FOR UPDATE SKIP LOCKED

-- name: fold_counts
-- Replaces counts by their sums, so that stats read few rows.
-- Run by: some commits, after their work
-- In:  $1 no of the counts that were added up; the sums: $2 q, $3 state number, $4 change
-- Out: nothing
DELETE FROM tampu_tally WHERE no IN ($1) LIMIT #1;
INSERT INTO tampu_tally (q, kind, n) VALUES {($2, $3, $4)}
