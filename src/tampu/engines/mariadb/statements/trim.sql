-- Statements of trim and purge. `message row` stands for the columns of a MessageRow: seq, q, attempts, stamp, id, group,
-- rank, max_attempts, expires, whether it has a key.

-- name: select_queues_to_trim
-- Queues whose oldest ended message is old enough.
-- Run by: trim
-- In:  $1 ended by this time, $2 now: a later time was written by a clock that was ahead
-- Out: q, state number
SELECT u.q, s.state FROM tampu_queue u CROSS JOIN (SELECT 4 AS state UNION ALL SELECT 6 UNION ALL SELECT 7) AS s
WHERE (SELECT e.at FROM tampu_ending e FORCE INDEX (PRIMARY) WHERE e.q = u.q AND e.state = s.state
  ORDER BY e.no LIMIT 1) NOT BETWEEN $1 + 1 AND $2

-- name: lock_oldest_endings
-- Locks rows of endings, oldest first. Skips rows that others have locked.
-- Run by: trim, purge
-- In:  $1 q, $2 state number, $3 limit
-- Out: no, at, seqs
SELECT no, at, seqs FROM tampu_ending FORCE INDEX (PRIMARY) WHERE q = $1 AND state = $2 ORDER BY no LIMIT $3
FOR UPDATE SKIP LOCKED

-- name: select_later_ending
-- When the next messages ended that did not end in the future, because of a clock that was ahead.
-- Run by: trim
-- In:  $1 q, $2 state number, $3 no, $4 now
-- Out: at
SELECT at FROM (
  SELECT at FROM tampu_ending FORCE INDEX (PRIMARY) WHERE q = $1 AND state = $2 AND no > $3
  ORDER BY no LIMIT 10000) AS later
WHERE at <= $4 LIMIT 1

-- name: select_unread_entries
-- Entries that some reader has not read completely.
-- Run by: trim
-- In:  $1 nos, $2 the offset that all readers have
-- Out: the nos with a record after the offset
SELECT DISTINCT no FROM tampu_journal FORCE INDEX (entry) WHERE no IN ($1) AND first + n - 1 > $2;
SELECT DISTINCT no FROM tampu_journal_new FORCE INDEX (PRIMARY) WHERE no IN ($1)

-- name: update_ending
-- Shortens a row of endings.
-- Run by: trim, purge
-- In:  $1 q, $2 state number, $3 no, $4 the seqs that are left
-- Out: nothing
UPDATE tampu_ending SET seqs = $4 WHERE q = $1 AND state = $2 AND no = $3

-- name: delete_endings
-- Removes rows of endings.
-- Run by: trim, purge
-- In:  $1 q, $2 state number, $3 nos
-- Out: nothing
DELETE FROM tampu_ending WHERE q = $1 AND state = $2 AND no IN ($3) LIMIT #3

-- name: remove_ended
-- Removes messages from `ended`.
-- Run by: trim, purge, remove
-- In:  $1 seqs
-- Out: seq, attempts
DELETE FROM tampu_ended WHERE seq IN ($1) LIMIT #1 RETURNING seq, attempts

-- name: delete_ended
-- Removes messages from `ended`.
-- Run by: trim
-- In:  $1 seqs
-- Out: seq of those that were there
DELETE FROM tampu_ended WHERE seq IN ($1) LIMIT #1 RETURNING seq

-- name: purge_dead
-- Locks the oldest dead messages of a queue. Skips rows that others have locked.
-- Run by: purge
-- In:  $1 q, $2 limit, $3 died by this time
-- Out: seq, attempts
SELECT seq, attempts FROM tampu_dead FORCE INDEX (of_queue) WHERE q = $1 AND at <= $3 ORDER BY at, seq LIMIT $2
FOR UPDATE SKIP LOCKED

-- name: remove_dead
-- Removes messages from `dead`.
-- Run by: purge
-- In:  $1 seqs
-- Out: seq, attempts of those that were there
DELETE FROM tampu_dead WHERE seq IN ($1) LIMIT #1 RETURNING seq, attempts

-- name: delete_messages
-- Removes messages that are in no index any more, with their history and result.
-- Run by: trim, purge, remove
-- In:  $1 seqs
-- Out: nothing
DELETE FROM tampu_failure WHERE seq IN ($1);
DELETE FROM tampu_result WHERE seq IN ($1) LIMIT #1;
DELETE c FROM tampu_message m FORCE INDEX (PRIMARY)
STRAIGHT_JOIN tampu_correlation c FORCE INDEX (of_seq) ON c.seq = m.seq WHERE m.seq IN ($1);
DELETE i FROM tampu_message m FORCE INDEX (PRIMARY)
STRAIGHT_JOIN tampu_own_id i FORCE INDEX (PRIMARY) ON i.id = m.id AND i.seq = m.seq WHERE m.seq IN ($1);
DELETE FROM tampu_message WHERE seq IN ($1) LIMIT #1

-- name: trim_results
-- Locks expired results.
-- Run by: trim
-- In:  $1 now, $2 limit
-- Out: seq
SELECT seq FROM tampu_result FORCE INDEX (until) WHERE until <= $1 ORDER BY until LIMIT $2 FOR UPDATE SKIP LOCKED

-- name: delete_results
-- Removes results.
-- Run by: trim_results
-- In:  $1 seqs
-- Out: nothing
DELETE FROM tampu_result WHERE seq IN ($1) LIMIT #1

-- name: trim_idempotency_keys
-- Locks idempotency keys whose window is over.
-- Run by: trim
-- In:  $1 now, $2 limit
-- Out: tenant, idempotency key
SELECT tenant, word FROM tampu_idempotency FORCE INDEX (until) WHERE until <= $1 ORDER BY until LIMIT $2
FOR UPDATE SKIP LOCKED

-- name: delete_idempotency_keys
-- Removes idempotency keys.
-- Run by: trim_idempotency_keys
-- In:  $1 tenant, $2 idempotency keys
-- Out: nothing
DELETE FROM tampu_idempotency WHERE tenant = $1 AND word IN ($2) LIMIT #2

-- name: trim_group_rates
-- Locks groups that have all their tokens back.
-- Run by: trim
-- In:  $1 now, $2 limit
-- Out: q, group
SELECT q, lane FROM tampu_pace FORCE INDEX (spent) WHERE spent <= $1 ORDER BY spent LIMIT $2 FOR UPDATE SKIP LOCKED

-- name: delete_group_rates
-- Removes groups that have all their tokens back.
-- Run by: trim_group_rates
-- In:  $1 q, $2 groups
-- Out: nothing
DELETE FROM tampu_pace WHERE q = $1 AND lane IN ($2) LIMIT #2

-- name: select_rates_ahead
-- Groups that spent more than is possible by now, because a clock was ahead: those beyond
--      the slowest rate of any queue; in queues with a faster rate only once they are beyond that too.
-- Run by: trim
-- In:  $1 now, $2 limit
-- Out: q, group
SELECT p.q, p.lane FROM tampu_pace p FORCE INDEX (spent) STRAIGHT_JOIN tampu_queue t ON t.q = p.q
WHERE p.spent > $1 + (SELECT MAX(pace * pace_burst) FROM tampu_queue) AND p.spent > $1 + t.pace * t.pace_burst
ORDER BY p.spent LIMIT $2
