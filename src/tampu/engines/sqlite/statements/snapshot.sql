-- Statements for Spark, which reads a whole store in one snapshot.

-- name: snapshot_queues
-- Every queue.
-- Run by: snapshot
-- In:  nothing
-- Out: q, tenant, name
SELECT q, tenant, name FROM tampu_queue ORDER BY q

-- name: snapshot_live
-- Live and dead messages, except those of `snapshot_runs`.
-- Run by: snapshot
-- In:  $1 qs, $2 state numbers
-- Out: seq, q, state number, attempts, run_at, ended at, reason
SELECT seq, q, 0, attempts, NULL, NULL, NULL FROM tampu_ready
  WHERE q IN (SELECT value FROM json_each($1)) AND 0 IN (SELECT value FROM json_each($2))
  AND seq = last AND (pos <> seq OR attempts > 0)
UNION ALL SELECT seq, q, 1, attempts, run_at, NULL, NULL FROM tampu_delayed
  WHERE q IN (SELECT value FROM json_each($1)) AND 1 IN (SELECT value FROM json_each($2))
UNION ALL SELECT seq, q, 2, attempts, NULL, NULL, NULL FROM tampu_leased
  WHERE q IN (SELECT value FROM json_each($1)) AND 2 IN (SELECT value FROM json_each($2))
UNION ALL SELECT seq, q, 3, attempts, run_at, NULL, CAST(reason AS BLOB) FROM tampu_held
  WHERE q IN (SELECT value FROM json_each($1)) AND 3 IN (SELECT value FROM json_each($2))
UNION ALL SELECT seq, q, 5, attempts, NULL, at, CAST(reason AS BLOB) FROM tampu_dead
  WHERE q IN (SELECT value FROM json_each($1)) AND 5 IN (SELECT value FROM json_each($2))

-- name: snapshot_runs
-- Runs of messages that are ready and never moved.
-- Run by: snapshot_unmoved
-- In:  $1 qs
-- Out: q, seq, last
SELECT q, seq, last FROM tampu_ready
WHERE q IN (SELECT value FROM json_each($1)) AND (seq < last OR (pos = seq AND attempts = 0))

-- name: snapshot_endings
-- Messages that ended, one row per commit.
-- Run by: snapshot
-- In:  $1 qs, $2 state numbers, $3 ended from, $4 ended before
-- Out: q, state number, at, seqs
SELECT q, state, at, seqs FROM tampu_ending
WHERE q IN (SELECT value FROM json_each($1)) AND state IN (SELECT value FROM json_each($2)) AND at >= $3 AND at < $4

-- name: snapshot_find_numbers
-- Finds messages of any tenant by number.
-- Run by: snapshot_find
-- In:  $1 seqs
-- Out: seq, q
SELECT m.seq, m.q FROM json_each($1) j CROSS JOIN tampu_message m ON m.seq = j.value

-- name: snapshot_has_given_ids
-- Whether users gave ids to messages.
-- Run by: snapshot_find
-- In:  nothing
-- Out: a row if they did
SELECT 1 FROM tampu_message WHERE id IS NOT NULL LIMIT 1

-- name: snapshot_find_ids
-- Finds messages of any tenant by the id that the user gave.
-- Run by: snapshot_find
-- In:  rows: $1 id
-- Out: seq, q
SELECT seq, q FROM tampu_message WHERE id = $1

-- name: snapshot_failures
-- The number of the latest failed attempt of messages, where there was one.
-- Run by: snapshot
-- In:  $1 seqs
-- Out: seq, number of the failed attempt
SELECT f.seq, max(f.no) FROM json_each($1) j CROSS JOIN tampu_failure f ON f.seq = j.value GROUP BY f.seq

-- name: snapshot_errors
-- The errors of failed attempts.
-- Run by: snapshot
-- In:  rows: $1 seq, $2 number of a failed attempt
-- Out: seq, error
SELECT seq, CAST(error AS BLOB) FROM tampu_failure WHERE seq = $1 AND no = $2

-- name: snapshot_expiries
-- The expiries of messages that have one.
-- Run by: snapshot
-- In:  $1 seqs
-- Out: seq, expires
SELECT m.seq, m.expires FROM json_each($1) j CROSS JOIN tampu_message m ON m.seq = j.value WHERE m.expires IS NOT NULL

-- name: snapshot_count
-- Counts the messages of a range of numbers.
-- Run by: snapshot
-- In:  $1 first and $2 last seq, $3 limit
-- Out: how many
SELECT count(*) FROM (SELECT 1 FROM tampu_message WHERE seq BETWEEN $1 AND $2 LIMIT $3)

-- name: snapshot_messages
-- The immutable part of messages.
-- Run by: snapshot readers
-- In:  $1 first and $2 last seq, $3 whether the bodies are needed
-- Out: seq, created, max_attempts, expires, ahead (always NULL), id, body
SELECT seq, created, max_attempts, expires, NULL, id, CASE WHEN $3 THEN body ELSE x'' END FROM tampu_message
WHERE seq BETWEEN $1 AND $2

-- name: snapshot_attempts
-- The attempts of messages of a range that ended after more or fewer than one.
-- Run by: snapshot
-- In:  $1 first and $2 last seq
-- Out: seq, attempts
SELECT seq, attempts FROM tampu_ended WHERE seq BETWEEN $1 AND $2 AND attempts <> 1

-- name: snapshot_last_errors
-- The errors of failed attempts of messages of a range, the latest last.
-- Run by: snapshot
-- In:  $1 first and $2 last seq
-- Out: seq, error
SELECT seq, CAST(error AS BLOB) FROM tampu_failure WHERE seq BETWEEN $1 AND $2 ORDER BY seq, no

-- name: snapshot_results
-- The results of messages of a range that have not expired.
-- Run by: snapshot
-- In:  $1 first and $2 last seq, $3 now
-- Out: seq, result
SELECT seq, body FROM tampu_result WHERE seq BETWEEN $1 AND $2 AND until > $3

-- name: snapshot_result_sizes
-- The sizes of the results of a range of messages.
-- Run by: snapshot readers
-- In:  $1 first and $2 last seq, $3 the time
-- Out: seq, bytes of its result, if that has not expired
SELECT seq, length(body) FROM tampu_result WHERE seq BETWEEN $1 AND $2 AND until > $3

-- name: snapshot_results_of
-- The results of messages.
-- Run by: snapshot readers
-- In:  $1 seqs, $2 the time
-- Out: seq, result, if that has not expired
SELECT r.seq, r.body FROM json_each($1) j CROSS JOIN tampu_result r ON r.seq = j.value WHERE r.until > $2

-- name: snapshot_sizes
-- The sizes of messages and their results.
-- Run by: snapshot readers
-- In:  $1 seqs
-- Out: seq, bytes of its body and its result
SELECT m.seq, length(m.body) + coalesce(length(r.body), 0) FROM json_each($1) j
CROSS JOIN tampu_message m ON m.seq = j.value LEFT JOIN tampu_result r ON r.seq = m.seq

-- name: read_journal_range
-- Records of a range of offsets. The record that holds the next offset may begin before it.
-- Run by: reading the journal by Spark
-- In:  $1 the offset to continue after, $2 the last offset wanted, $3 limit of records
-- Out: first, n, at, q, body
SELECT first, n, at, q, body FROM tampu_journal
WHERE first BETWEEN coalesce((SELECT max(first) FROM tampu_journal WHERE first <= $1 + 1), 0) AND $2
ORDER BY first LIMIT $3

-- name: select_journal_bounds
-- The bounds of the journal.
-- Run by: reading the journal by Spark
-- In:  nothing
-- Out: the first offset that is still there or NULL, the last offset given
SELECT (SELECT min(first) FROM tampu_journal), n FROM tampu_counter WHERE q = 0 AND kind = 1

-- name: find_journal_since
-- The first record that is not older than a time.
-- Run by: reading the journal by Spark
-- In:  $1 a time
-- Out: its first offset
SELECT first FROM tampu_journal WHERE at >= $1 ORDER BY first LIMIT 1

-- name: find_journal_until
-- The last record that is older than a time.
-- Run by: reading the journal by Spark
-- In:  $1 a time
-- Out: its last offset
SELECT first + n - 1 FROM tampu_journal WHERE at < $1 ORDER BY first DESC LIMIT 1
