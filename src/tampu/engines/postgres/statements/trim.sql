-- Statements of trim and purge. `message row` stands for the columns of a MessageRow: seq, q, attempts, stamp, id, group,
-- rank, max_attempts, expires, whether it has a key.

-- name: select_queues_to_trim
-- Queues whose oldest ended message is old enough.
-- Run by: trim
-- In:  $1 ended by this time, $2 now: a later time was written by a clock that was ahead
-- Out: q, state number
SELECT u.q, s.state FROM tampu.queue u CROSS JOIN (VALUES (4), (6), (7)) AS s(state)
CROSS JOIN LATERAL (
  SELECT e.at FROM tampu.ending e WHERE e.q = u.q AND e.state = s.state ORDER BY e.q, e.state, e.no LIMIT 1) AS e
WHERE e.at <= $1::int8 OR e.at > $2::int8 ORDER BY u.q, s.state

-- name: lock_oldest_endings
-- Locks rows of endings, oldest first. Skips rows that others have locked.
-- Run by: trim, purge
-- In:  $1 q, $2 state number, $3 limit
-- Out: no, at, seqs
SELECT no, at, seqs FROM tampu.ending WHERE q = $1::int8 AND state = $2::int8
ORDER BY q, state, no LIMIT $3::int8 FOR UPDATE SKIP LOCKED

-- name: select_later_ending
-- When the next messages ended that did not end in the future, because of a clock that was ahead.
-- Run by: trim
-- In:  $1 q, $2 state number, $3 no, $4 now
-- Out: at
SELECT at FROM (
  SELECT at FROM tampu.ending WHERE q = $1::int8 AND state = $2::int8 AND no > $3::int8
  ORDER BY q, state, no LIMIT 10000) AS later
WHERE at <= $4::int8 LIMIT 1

-- name: select_unread_entries
-- Entries that some reader has not read completely.
-- Run by: trim
-- In:  $1 nos, $2 the offset that all readers have
-- Out: the nos with a record after the offset
SELECT s.no FROM unnest($1::int8[]) AS s(no)
LEFT JOIN LATERAL (
  SELECT true AS yes FROM tampu.journal j WHERE j.no = s.no AND j.first + j.n - 1 > $2::int8 LIMIT 1) AS j ON true
LEFT JOIN LATERAL (SELECT true AS yes FROM tampu.journal_new w WHERE w.no = s.no LIMIT 1) AS w ON true
WHERE j.yes OR w.yes

-- name: update_ending
-- Shortens a row of endings.
-- Run by: trim, purge
-- In:  $1 q, $2 state number, $3 no, $4 the seqs that are left
-- Out: nothing
UPDATE tampu.ending SET seqs = $4::bytea WHERE q = $1::int8 AND state = $2::int8 AND no = $3::int8

-- name: delete_endings
-- Removes rows of endings.
-- Run by: trim, purge
-- In:  $1 q, $2 state number, $3 nos
-- Out: nothing
DELETE FROM tampu.ending WHERE q = $1::int8 AND state = $2::int8 AND no = ANY ($3::int8[])

-- name: remove_ended
-- Removes messages from `ended`.
-- Run by: trim, purge, remove
-- In:  $1 seqs
-- Out: message row
WITH gone AS (DELETE FROM tampu.ended WHERE seq = ANY ($1::int8[]) RETURNING seq, attempts)
SELECT m.seq, m.q, g.attempts, m.created / 1000 + coalesce(m.ahead, 0), m.id, m.lane, m.rank, m.max_attempts,
  m.expires, m.key IS NOT NULL
FROM gone g CROSS JOIN LATERAL (SELECT * FROM tampu.message m WHERE m.seq = g.seq OFFSET 0) AS m ORDER BY m.seq

-- name: delete_ended
-- Removes messages from `ended`.
-- Run by: trim
-- In:  $1 seqs
-- Out: seq of those that were there
DELETE FROM tampu.ended WHERE seq = ANY ($1::int8[]) RETURNING seq

-- name: purge_dead
-- Removes the oldest messages of a queue from `dead`.
-- Run by: purge
-- In:  $1 q, $2 limit, $3 died by this time
-- Out: message row
WITH gone AS (
  DELETE FROM tampu.dead WHERE seq = ANY (ARRAY(
    SELECT seq FROM tampu.dead WHERE q = $1::int8 AND at <= $3::int8 ORDER BY q, at, seq LIMIT $2::int8
    FOR UPDATE SKIP LOCKED))
  RETURNING seq, attempts)
SELECT m.seq, m.q, g.attempts, m.created / 1000 + coalesce(m.ahead, 0), m.id, m.lane, m.rank, m.max_attempts,
  m.expires, m.key IS NOT NULL
FROM gone g CROSS JOIN LATERAL (SELECT * FROM tampu.message m WHERE m.seq = g.seq OFFSET 0) AS m ORDER BY m.seq

-- name: remove_dead
-- Removes messages from `dead`.
-- Run by: purge
-- In:  $1 seqs
-- Out: message row of those that were there
WITH gone AS (DELETE FROM tampu.dead WHERE seq = ANY ($1::int8[]) RETURNING seq, attempts)
SELECT m.seq, m.q, g.attempts, m.created / 1000 + coalesce(m.ahead, 0), m.id, m.lane, m.rank, m.max_attempts,
  m.expires, m.key IS NOT NULL
FROM gone g CROSS JOIN LATERAL (SELECT * FROM tampu.message m WHERE m.seq = g.seq OFFSET 0) AS m ORDER BY m.seq

-- name: delete_messages
-- Removes messages that are in no index any more, with their history and result.
-- Run by: trim, purge, remove
-- In:  $1 seqs
-- Out: nothing
WITH history AS (DELETE FROM tampu.failure WHERE seq = ANY ($1::int8[])),
answers AS (DELETE FROM tampu.result WHERE seq = ANY ($1::int8[])),
correlations AS (DELETE FROM tampu.correlation WHERE seq + 0 = ANY ($1::int8[]))
DELETE FROM tampu.message WHERE seq = ANY ($1::int8[])

-- name: trim_results
-- Removes expired results.
-- Run by: trim
-- In:  $1 now, $2 limit
-- Out: seq
DELETE FROM tampu.result WHERE seq = ANY (ARRAY(
  SELECT seq FROM tampu.result WHERE until <= $1::int8 ORDER BY until LIMIT $2::int8 FOR UPDATE SKIP LOCKED))
RETURNING seq

-- name: trim_idempotency_keys
-- Removes idempotency keys whose window is over.
-- Run by: trim
-- In:  $1 now, $2 limit
-- Out: idempotency key
DELETE FROM tampu.idempotency WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM tampu.idempotency WHERE until <= $1::int8 ORDER BY until LIMIT $2::int8 FOR UPDATE SKIP LOCKED))
RETURNING key

-- name: trim_group_rates
-- Removes groups that have all their tokens back.
-- Run by: trim
-- In:  $1 now, $2 limit
-- Out: group
DELETE FROM tampu.pace WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM tampu.pace WHERE spent <= $1::int8 ORDER BY spent LIMIT $2::int8 FOR UPDATE SKIP LOCKED))
RETURNING lane

-- name: select_rates_ahead
-- Groups that spent more than is possible by now, because a clock was ahead: those beyond
--      the slowest rate of any queue; in queues with a faster rate only once they are beyond that too.
-- Run by: trim
-- In:  $1 now, $2 limit
-- Out: q, group
SELECT p.q, p.lane FROM tampu.pace p JOIN tampu.queue t ON t.q = p.q
WHERE p.spent > $1::int8 + (SELECT max(pace * pace_burst) FROM tampu.queue)
  AND p.spent > $1::int8 + t.pace * t.pace_burst
ORDER BY p.spent LIMIT $2::int8
