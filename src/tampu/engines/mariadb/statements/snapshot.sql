-- Statements for Spark, which reads a whole store in one snapshot.

-- name: snapshot_unnumbered
-- The records that have no offset yet, in their order.
-- Run by: snapshot
-- In:  nothing
-- Out: no, part, n
SELECT no, part, n FROM tampu_journal_new FORCE INDEX (PRIMARY) ORDER BY no, part

-- name: snapshot_number_records
-- Gives offsets to these records, and to no others. The caller holds the journal's lock.
-- Run by: snapshot
-- In:  columns: $1 offset of the first transition, $2 no, $3 part
-- Out: nothing
INSERT INTO tampu_journal (first, no, part, at, n, q, body)
WITH s (first, no, part) AS (VALUES {($1, $2, $3)})
SELECT s.first, w.no, w.part, w.at, w.n, w.q, w.body FROM s
STRAIGHT_JOIN tampu_journal_new w FORCE INDEX (PRIMARY) ON w.no = s.no AND w.part = s.part

-- name: snapshot_queues
-- Every queue.
-- Run by: snapshot
-- In:  nothing
-- Out: q, tenant, name
SELECT q, tenant, name FROM tampu_queue FORCE INDEX (PRIMARY) ORDER BY q

-- name: snapshot_live
-- Live and dead messages, except those of `snapshot_unmoved`.
-- Run by: snapshot
-- In:  $1 qs, whether to include: $2 ready, $3 delayed, $4 leased, $5 held, $6 dead
-- Out: seq, q, state number, attempts, run_at, ended at, reason
SELECT r.seq, r.q, 0, r.attempts, NULL, NULL, NULL FROM tampu_placed p FORCE INDEX (PRIMARY)
STRAIGHT_JOIN tampu_ready r FORCE INDEX (PRIMARY) ON r.q = p.q AND r.place = p.place AND r.pos = p.pos
WHERE $2 AND p.q IN ($1) AND p.pos <> p.seq;
SELECT seq, q, 1, attempts, run_at, NULL, NULL FROM tampu_delayed FORCE INDEX (of_queue) WHERE $3 AND q IN ($1);
SELECT seq, q, 2, attempts, NULL, NULL, NULL FROM tampu_leased WHERE $4 AND q IN ($1);
SELECT seq, q, 3, attempts, run_at, NULL, reason FROM tampu_held FORCE INDEX (of_queue) WHERE $5 AND q IN ($1);
SELECT seq, q, 5, attempts, NULL, at, reason FROM tampu_dead FORCE INDEX (of_queue) WHERE $6 AND q IN ($1)

-- name: snapshot_unmoved
-- Messages that are ready and never moved. There may be millions, so they are packed.
-- Run by: snapshot
-- In:  $1 qs
-- Out: q, seqs with commas between; several rows for a queue with many
SET STATEMENT group_concat_max_len = 1073741824 FOR
SELECT q, GROUP_CONCAT(seq) FROM tampu_ready FORCE INDEX (PRIMARY)
WHERE q IN ($1) AND pos = seq GROUP BY q, seq DIV 65536

-- name: snapshot_endings
-- Messages that ended, one row per commit.
-- Run by: snapshot
-- In:  $1 qs, $2 state number, $3 ended from, $4 ended before
-- Out: q, state number, at, seqs
SELECT q, state, at, seqs FROM tampu_ending FORCE INDEX (PRIMARY)
WHERE q IN ($1) AND state = $2 AND at >= $3 AND at < $4

-- name: snapshot_failures
-- The number of the latest failed attempt of messages, where there was one.
-- Run by: snapshot
-- In:  $1 seqs
-- Out: seq, number of the failed attempt
SELECT seq, MAX(no) FROM tampu_failure FORCE INDEX (PRIMARY) WHERE seq IN ($1) GROUP BY seq

-- name: snapshot_errors
-- The errors of failed attempts.
-- Run by: snapshot
-- In:  columns: $1 seq, $2 number of a failed attempt
-- Out: seq, error
SELECT seq, error FROM tampu_failure FORCE INDEX (PRIMARY) WHERE {(seq = $1 AND no = $2) OR}

-- name: snapshot_expiries
-- The expiries of messages that have one.
-- Run by: snapshot
-- In:  $1 seqs
-- Out: seq, expires
SELECT seq, expires FROM tampu_message FORCE INDEX (PRIMARY) WHERE seq IN ($1) AND expires IS NOT NULL

-- name: snapshot_count
-- Counts the messages of a range of numbers.
-- Run by: snapshot
-- In:  $1 first and $2 last seq, $3 limit
-- Out: how many
SELECT COUNT(*) FROM (
  SELECT seq FROM tampu_message FORCE INDEX (PRIMARY) WHERE seq BETWEEN $1 AND $2 LIMIT $3) AS m

-- name: snapshot_columns
-- The immutable part of messages, without bodies. Column by column, because the driver takes ten times as long
-- for a row of each.
-- Run by: snapshot
-- In:  $1 first and $2 last seq, $3 limit of messages, $4 a number that stands for NULL
-- Out: with commas between: seqs, created, max_attempts, expires, ahead, sizes of the bodies;
--      and one after the other: whether it has an id of its own (0 or 1), those ids
SET STATEMENT group_concat_max_len = 1073741824 FOR
SELECT GROUP_CONCAT(seq), GROUP_CONCAT(created), GROUP_CONCAT(max_attempts), GROUP_CONCAT(COALESCE(expires, $4)),
  GROUP_CONCAT(COALESCE(ahead, $4)), GROUP_CONCAT(size), GROUP_CONCAT(id IS NOT NULL SEPARATOR ''),
  GROUP_CONCAT(id SEPARATOR '')
FROM (SELECT seq, created, max_attempts, expires, ahead, id, LENGTH(body) AS size
  FROM tampu_message FORCE INDEX (PRIMARY) WHERE seq BETWEEN $1 AND $2 ORDER BY seq LIMIT $3) AS m

-- name: snapshot_bodies
-- Bodies one after the other. The driver takes ten times as long for a row of each.
-- Run by: snapshot
-- In:  $1 first and $2 last seq
-- Out: seqs, bodies, in the same order
SET STATEMENT group_concat_max_len = 1073741824 FOR
SELECT GROUP_CONCAT(seq), GROUP_CONCAT(body SEPARATOR '') FROM tampu_message FORCE INDEX (PRIMARY)
WHERE seq BETWEEN $1 AND $2

-- name: snapshot_attempts
-- The attempts of messages of a range that ended after more or fewer than one.
-- Run by: snapshot
-- In:  $1 first and $2 last seq
-- Out: seq, attempts
SELECT seq, attempts FROM tampu_ended FORCE INDEX (PRIMARY) WHERE seq BETWEEN $1 AND $2 AND attempts <> 1

-- name: snapshot_last_errors
-- The error of the latest failed attempt of messages of a range, where there was one.
-- Run by: snapshot
-- In:  $1 first and $2 last seq
-- Out: seq, error
SELECT f.seq, f.error FROM (
  SELECT seq, MAX(no) AS no FROM tampu_failure FORCE INDEX (PRIMARY) WHERE seq BETWEEN $1 AND $2 GROUP BY seq) AS l
STRAIGHT_JOIN tampu_failure f FORCE INDEX (PRIMARY) ON f.seq = l.seq AND f.no = l.no

-- name: snapshot_results
-- The results of messages of a range that have not expired.
-- Run by: snapshot
-- In:  $1 first and $2 last seq, $3 now
-- Out: seq, result
SELECT seq, body FROM tampu_result FORCE INDEX (PRIMARY) WHERE seq BETWEEN $1 AND $2 AND until > $3

-- name: snapshot_result_sizes
-- The sizes of the results of a range of messages.
-- Run by: snapshot readers
-- In:  $1 first and $2 last seq, $3 the time
-- Out: seq, bytes of its result, if that has not expired
SELECT seq, LENGTH(body) FROM tampu_result FORCE INDEX (PRIMARY) WHERE seq BETWEEN $1 AND $2 AND until > $3

-- name: snapshot_results_of
-- The results of messages.
-- Run by: snapshot readers
-- In:  $1 seqs, $2 the time
-- Out: seq, result, if that has not expired
SELECT seq, body FROM tampu_result FORCE INDEX (PRIMARY) WHERE seq IN ($1) AND until > $2

-- name: snapshot_sizes
-- The sizes of messages and their results.
-- Run by: snapshot readers
-- In:  $1 seqs
-- Out: seq, bytes of its body and its result
SELECT m.seq, LENGTH(m.body) + COALESCE(LENGTH(r.body), 0) FROM tampu_message m FORCE INDEX (PRIMARY)
LEFT JOIN tampu_result r FORCE INDEX (PRIMARY) ON r.seq = m.seq WHERE m.seq IN ($1)
