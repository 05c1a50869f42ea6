-- Statements of the ready index, whose rows are runs: (rank, pos, seq, attempts, lease, last).

-- name: insert_run
-- Adds a run.
-- Run by: publish of plain messages, bulk load; claim, admin and sweep, which split runs
-- In:  $1 q, $2 rank, $3 pos, $4 seq, $5 attempts, $6 lease, $7 last
-- Out: nothing
INSERT INTO tampu_ready VALUES ($1, $2, $3, $4, $5, $6, $7)

-- name: find_run
-- The run that begins at a message, or the last one before it: no other run can contain the message.
-- Run by: claim, and other verbs that remove waiting messages
-- In:  $1 q, $2 seq
-- Out: a run
SELECT rank, pos, seq, attempts, lease, last FROM tampu_ready INDEXED BY tampu_ready_seq
WHERE q = $1 AND seq <= $2 ORDER BY seq DESC LIMIT 1

-- name: delete_run
-- Removes a run.
-- Run by: verbs that remove waiting messages
-- In:  $1 q, $2 rank, $3 pos
-- Out: nothing
DELETE FROM tampu_ready WHERE q = $1 AND rank = $2 AND pos = $3

-- name: delete_runs_upto
-- Removes the first runs, up to a position.
-- Run by: claim
-- In:  $1 q, $2 rank, $3 pos
-- Out: nothing
DELETE FROM tampu_ready WHERE q = $1 AND (rank, pos) <= ($2, $3)

-- name: first_runs
-- The first runs.
-- Run by: list of ready messages
-- In:  $1 q, $2 limit
-- Out: runs, in the order of delivery
SELECT rank, pos, seq, attempts, lease, last FROM tampu_ready WHERE q = $1 ORDER BY rank, pos LIMIT $2

-- name: run_at
-- The last run that does not begin after a position.
-- Run by: list of ready messages
-- In:  $1 q, $2 rank, $3 pos
-- Out: a run
SELECT rank, pos, seq, attempts, lease, last FROM tampu_ready
WHERE q = $1 AND (rank, pos) <= ($2, $3) ORDER BY rank DESC, pos DESC LIMIT 1

-- name: next_runs
-- The first runs after a position.
-- Run by: list of ready messages
-- In:  $1 q, $2 rank, $3 pos, $4 limit
-- Out: runs, in the order of delivery
SELECT rank, pos, seq, attempts, lease, last FROM tampu_ready
WHERE q = $1 AND (rank, pos) > ($2, $3) ORDER BY rank, pos LIMIT $4
