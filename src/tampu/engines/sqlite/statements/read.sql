-- Statements that read: messages by id, pages of a state, stats, the journal.

-- name: find_message
-- Finds a message by id. Those of other tenants are not found.
-- Run by: find_messages
-- In:  $1 tenant, $2 number or NULL, $3 id
-- Out: seq, q
SELECT m.seq, m.q FROM tampu_message m CROSS JOIN tampu_queue u ON u.q = m.q WHERE m.seq = $2 AND u.tenant = $1
UNION ALL
SELECT m.seq, m.q FROM tampu_message m CROSS JOIN tampu_queue u ON u.q = m.q WHERE m.id = $3 AND u.tenant = $1
LIMIT 1

-- name: select_messages
-- Messages with their states, in the order of $1. A ready message is in the last run that begins at it or before it.
-- Run by: get, list, publish with a key, stores
-- In:  $1 seqs
-- Out: seq, q, created, stamp, max_attempts, expires, id, body, state number, attempts, run_at, ended at, reason,
--      whether cancel was requested, error of the last failed attempt; if it is leased: worker, until, since, extended
SELECT m.seq, m.q, m.created, m.seq >> 20, m.max_attempts, m.expires, m.id, m.body,
  CASE WHEN r.seq THEN 0 WHEN d.seq THEN 1 WHEN l.seq THEN 2 WHEN h.seq THEN 3 WHEN x.seq THEN 5 ELSE e.state END,
  coalesce(r.attempts, d.attempts, l.attempts, h.attempts, x.attempts, e.attempts),
  coalesce(d.run_at, h.run_at), coalesce(e.at, x.at),
  CAST(CASE WHEN h.seq THEN h.reason ELSE x.reason END AS BLOB), coalesce(l.cancel, 0), CAST(f.error AS BLOB),
  CAST(l.worker AS BLOB), l.until, l.since, l.extended
FROM json_each($1) j CROSS JOIN tampu_message m ON m.seq = j.value
LEFT JOIN tampu_ended e ON e.seq = m.seq
LEFT JOIN tampu_leased l ON l.seq = m.seq
LEFT JOIN tampu_delayed d ON d.seq = m.seq
LEFT JOIN tampu_dead x ON x.seq = m.seq
LEFT JOIN tampu_held h ON h.seq = m.seq
LEFT JOIN tampu_ready r INDEXED BY tampu_ready_seq ON r.q = m.q AND r.seq = (
  SELECT max(seq) FROM tampu_ready INDEXED BY tampu_ready_seq WHERE q = m.q AND seq <= m.seq)
  AND m.seq <= r.last AND (m.seq - r.seq) % 2 = 0
LEFT JOIN tampu_failure f ON f.seq = m.seq AND f.no = (SELECT max(no) FROM tampu_failure WHERE seq = m.seq)
WHERE coalesce(r.seq, d.seq, l.seq, h.seq, x.seq, e.seq) IS NOT NULL

-- name: find_correlated
-- Messages with a correlation id, oldest first.
-- Run by: trace
-- In:  $1 hash of tenant and correlation id, $2 limit
-- Out: seq
SELECT seq FROM tampu_correlation WHERE word = $1 ORDER BY seq LIMIT $2

-- name: select_failures
-- The failed attempts of a message, oldest first.
-- Run by: get of one message
-- In:  $1 seq
-- Out: attempt, at, outcome, worker, error, traceback
SELECT attempt, at, outcome, CAST(worker AS BLOB), CAST(error AS BLOB), CAST(traceback AS BLOB) FROM tampu_failure
WHERE seq = $1 ORDER BY no

-- name: select_result
-- The result of a message, until it expires.
-- Run by: get of one message, units
-- In:  $1 seq, $2 now
-- Out: the result
SELECT body FROM tampu_result WHERE seq = $1 AND until > $2

-- name: page_delayed
-- Delayed messages in the order they fall due.
-- Run by: list
-- In:  $1 q, $2 run_at, $3 seq to continue after, $4 limit
-- Out: seq, run_at, seq
SELECT seq, run_at, seq FROM tampu_delayed WHERE q = $1 AND (run_at, seq) > ($2, $3) ORDER BY run_at, seq LIMIT $4

-- name: page_leased
-- Leased messages in publish order.
-- Run by: list
-- In:  $1 q, $2 seq to continue after, $3 limit
-- Out: seq, seq
SELECT seq, seq FROM tampu_leased WHERE q = $1 AND seq > $2 ORDER BY seq LIMIT $3

-- name: page_held
-- Held messages in publish order.
-- Run by: list
-- In:  $1 q, $2 seq to continue after, $3 limit
-- Out: seq, seq
SELECT seq, seq FROM tampu_held WHERE q = $1 AND seq > $2 ORDER BY seq LIMIT $3

-- name: page_dead
-- Dead messages in the order they died.
-- Run by: list
-- In:  $1 q, $2 at, $3 seq to continue after, $4 limit
-- Out: seq, at, seq
SELECT seq, at, seq FROM tampu_dead WHERE q = $1 AND (at, seq) > ($2, $3) ORDER BY at, seq LIMIT $4

-- name: page_endings
-- Messages that ended, one row per commit, oldest first.
-- Run by: list
-- In:  $1 q, $2 state number, $3 entry to continue from, $4 limit
-- Out: no, seqs
SELECT no, seqs FROM tampu_ending WHERE q = $1 AND state = $2 AND no >= $3 ORDER BY no LIMIT $4

-- name: select_still_ended
-- Those of the messages that are still in `ended`, in the order of $1.
-- Run by: list
-- In:  $1 seqs
-- Out: seq
SELECT e.seq FROM json_each($1) j CROSS JOIN tampu_ended e ON e.seq = j.value

-- name: select_stats
-- Counts of messages by queue and state, and how long the oldest has been ready (in the first row of a queue).
-- Run by: stats
-- In:  $1 tenant, $2 queue or NULL for all, $3 now
-- Out: name, state number, how many, when the oldest ready message was published, now
SELECT u.name, c.kind, c.n, CASE WHEN c.kind = 0 THEN (SELECT m.created FROM tampu_message m WHERE m.seq = (
    SELECT r.seq FROM tampu_ready r WHERE r.q = u.q ORDER BY r.seq LIMIT 1)) END, $3
FROM tampu_queue u CROSS JOIN tampu_counter c ON c.q = u.q
WHERE u.tenant = $1 AND u.name BETWEEN coalesce($2, '') AND coalesce($2, x'') ORDER BY u.name, c.kind

-- name: count_ready
-- Counts the ready messages of a queue; 0 for a queue that does not exist.
-- Run by: maintenance
-- In:  $1 tenant, $2 queue
-- Out: how many
SELECT coalesce((SELECT c.n FROM tampu_queue u CROSS JOIN tampu_counter c ON c.q = u.q AND c.kind = 0
  WHERE u.tenant = $1 AND u.name = $2), 0)

-- name: select_journal_end
-- The end of the journal.
-- Run by: reading the journal
-- In:  nothing
-- Out: the last offset given
SELECT n FROM tampu_counter WHERE q = 0 AND kind = 1

-- name: read_journal
-- Records after an offset. The record that holds the next offset may begin before it.
-- Run by: reading the journal
-- In:  $1 the offset to continue after, $2 limit of records
-- Out: first, n, at, q, body
SELECT first, n, at, q, body FROM tampu_journal
WHERE first >= coalesce((SELECT max(first) FROM tampu_journal WHERE first <= $1 + 1), 0) ORDER BY first LIMIT $2
