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
-- In:  columns: $1 until, $2 lease, $3 seqs (eight bytes each)
-- Out: nothing
INSERT INTO tampu_claim (until, lease, seqs) VALUES ($1, $2, $3)
ON CONFLICT (until, lease) DO UPDATE SET seqs = CAST(seqs || excluded.seqs AS BLOB)
