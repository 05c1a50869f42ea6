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

-- name: select_stored
-- Messages without their states, in the order of $1.
-- Run by: select_messages
-- In:  $1 seqs
-- Out: seq, q, created, stamp, max_attempts, expires, id, body
SELECT m.seq, m.q, m.created, m.seq >> 20, m.max_attempts, m.expires, m.id, m.body
FROM json_each($1) j CROSS JOIN tampu_message m ON m.seq = j.value

-- name: select_places
-- The states of messages that are not ready.
-- Run by: select_messages
-- In:  $1 seqs
-- Out: seq, state number, attempts, run_at, ended at, reason, whether cancel was requested
SELECT t.seq, t.state, t.attempts, NULL, t.at, bytes(NULL), 0 FROM json_each($1) j CROSS JOIN tampu_ended t ON t.seq = j.value
UNION ALL SELECT t.seq, 2, t.attempts, NULL, NULL, NULL, t.cancel FROM json_each($1) j CROSS JOIN tampu_leased t ON t.seq = j.value
UNION ALL SELECT t.seq, 1, t.attempts, t.run_at, NULL, NULL, 0 FROM json_each($1) j CROSS JOIN tampu_delayed t ON t.seq = j.value
UNION ALL SELECT t.seq, 5, t.attempts, NULL, t.at, t.reason, 0 FROM json_each($1) j CROSS JOIN tampu_dead t ON t.seq = j.value
UNION ALL SELECT t.seq, 3, t.attempts, t.run_at, NULL, t.reason, 0 FROM json_each($1) j CROSS JOIN tampu_held t ON t.seq = j.value

-- name: select_failures
-- The failed attempts of a message, oldest first.
-- Run by: get of one message
-- In:  $1 seq
-- Out: attempt, at, outcome, worker, error, traceback
SELECT attempt, at, outcome, bytes(worker), bytes(error), bytes(traceback) FROM tampu_failure WHERE seq = $1 ORDER BY no

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
