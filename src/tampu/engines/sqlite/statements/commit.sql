-- Statements of every commit: the numbers of queues, counts, and claims for the reaper.

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
-- Creates a queue, with a count for each state.
-- Run by: queue registry
-- In:  $1 tenant, $2 name
-- Out: the queue's number
INSERT INTO tampu_queue (tenant, name) VALUES ($1, $2);
INSERT INTO tampu_counter SELECT q, value, 0 FROM tampu_queue, json_each('[0, 1, 2, 3, 4, 5, 6, 7]')
WHERE tenant = $1 AND name = $2;
SELECT q FROM tampu_queue WHERE tenant = $1 AND name = $2

-- name: list_queues
-- All queues.
-- Run by: list of queues
-- In:  nothing
-- Out: tenant, name, q
SELECT tenant, name, q FROM tampu_queue ORDER BY tenant, name

-- name: count_by_state
-- Counts the messages of a queue by their state.
-- Run by: publish to a queue with a limit, claim with max_in_flight
-- In:  $1 q
-- Out: state number, how many messages
SELECT kind, n FROM tampu_counter WHERE q = $1

-- name: schedule_reap
-- Has the reaper check leases when they end.
-- Run by: extend, sweep
-- In:  rows: $1 until, $2 lease, $3 seqs (eight bytes each)
-- Out: nothing
INSERT INTO tampu_claim (until, lease, seqs) VALUES ($1, $2, $3)
ON CONFLICT (until, lease) DO UPDATE SET seqs = CAST(seqs || excluded.seqs AS BLOB)

-- name: select_counters
-- The last number given out and the end of the journal.
-- Run by: every commit, at its beginning
-- In:  nothing
-- Out: two rows: the last number, the last offset
SELECT n FROM tampu_counter WHERE q = 0 AND kind < 2 ORDER BY kind

-- name: insert_ending
-- Records the messages of a queue that ended in one state.
-- Run by: every commit, at its end
-- In:  $1 q, $2 state number, $3 a new number, $4 now, $5 seqs (packed)
-- Out: nothing
INSERT INTO tampu_ending VALUES ($1, $2, $3, $4, $5)

-- name: insert_claim
-- Has the reaper check the leases of a claim when they end.
-- Run by: every commit, at its end
-- In:  $1 until, $2 lease, $3 seqs (eight bytes each)
-- Out: nothing
INSERT INTO tampu_claim VALUES ($1, $2, $3)

-- name: insert_journal
-- Writes a record of the journal.
-- Run by: every commit, at its end
-- In:  $1 its first offset, $2 number of transitions, $3 now, $4 q, $5 packed columns
-- Out: nothing
INSERT INTO tampu_journal VALUES ($1, $2, $3, $4, $5)

-- name: add_to_counter
-- Changes a count.
-- Run by: every commit, at its end
-- In:  $1 difference, $2 q, $3 state number; with q 0: 0 numbers, 1 offsets
-- Out: nothing
UPDATE tampu_counter SET n = n + $1 WHERE q = $2 AND kind = $3

-- name: select_meta
-- What belongs to the whole file.
-- Run by: opening a store
-- In:  nothing
-- Out: name, value: the schema, and what ids are made of
SELECT name, value FROM tampu_meta
