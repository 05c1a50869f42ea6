-- Statements of settle and extend. `message row` stands for the columns of a MessageRow: seq, q, attempts, stamp, id,
-- group, rank, max_attempts, expires, whether it has a key.

-- name: select_leases
-- Leases of messages, whatever their receipts.
-- Run by: take_leases, lock_expired_leases
-- In:  $1 seqs
-- Out: message row, lease, worker, whether cancel was requested, until, the rate of its group
SELECT m.seq, m.q, l.attempts, m.seq >> 20, m.id, CAST(m.lane AS BLOB), m.rank, m.max_attempts, m.expires,
  m.key IS NOT NULL,
  l.lease, CAST(l.worker AS BLOB), l.cancel, l.until,
  CASE WHEN m.lane IS NOT NULL THEN (SELECT u.pace FROM tampu_queue u WHERE u.q = m.q) END
FROM json_each($1) j CROSS JOIN tampu_leased l ON l.seq = j.value CROSS JOIN tampu_message m ON m.seq = l.seq

-- name: find_settled
-- Finds what a settled lease led to, by its settle marker. A message that returned is a run of its own.
-- Run by: settle, for receipts that are not current any more
-- In:  rows: $1 q, $2 seq, $3 the settle marker that the verb leaves
-- Out: seq, settle marker, state number, stamp, id
SELECT m.seq, $3, w.state, m.seq >> 20, m.id FROM (
  SELECT state FROM tampu_ended WHERE seq = $2 AND lease = $3
  UNION ALL SELECT 5 FROM tampu_dead WHERE seq = $2 AND lease = $3
  UNION ALL SELECT 1 FROM tampu_delayed WHERE seq = $2 AND lease = $3
  UNION ALL SELECT 3 FROM tampu_held WHERE seq = $2 AND lease = $3
  UNION ALL SELECT 0 FROM tampu_ready INDEXED BY tampu_ready_seq WHERE q = $1 AND seq = $2 AND lease = $3) AS w
CROSS JOIN tampu_message m WHERE m.seq = $2 AND m.q = $1

-- name: upsert_results
-- Stores results.
-- Run by: ack with a result, import
-- In:  rows: $1 seq, $2 until, $3 body
-- Out: nothing
INSERT OR REPLACE INTO tampu_result (seq, until, body) VALUES ($1, $2, $3)

-- name: insert_ended
-- Puts messages into the index of ended messages.
-- Run by: settle, cancel, expire
-- In:  $1 now, rows: $2 seq, $3 lease, $4 q, $5 attempts, $6 state number
-- Out: nothing
INSERT INTO tampu_ended (seq, q, state, at, attempts, lease) VALUES ($2, $4, $6, $1, $5, $3)

-- name: insert_dead
-- Puts messages into the index of dead messages.
-- Run by: reject, sweep
-- In:  $1 now, rows: $2 seq, $3 lease, $4 q, $5 attempts, $6 reason
-- Out: nothing
INSERT INTO tampu_dead (seq, q, at, reason, attempts, lease) VALUES ($2, $4, $1, CAST($6 AS TEXT), $5, $3)

-- name: insert_failures
-- Stores failed attempts, for the history of their messages.
-- Run by: settle, sweep
-- In:  $1 now, rows: $2 seq, $3 attempt, $4 outcome, $5 worker, $6 error, $7 traceback
-- Out: nothing
INSERT INTO tampu_failure (seq, no, attempt, at, outcome, worker, error, traceback)
VALUES ($2, (SELECT coalesce(max(no), 0) + 1 FROM tampu_failure WHERE seq = $2), $3, $1,
  CAST($4 AS TEXT), CAST($5 AS TEXT), CAST($6 AS TEXT), CAST($7 AS TEXT))

-- name: restore_keys_and_expiries
-- Restores the expiry of messages that wait again, and their key if no newer message has it.
-- Run by: publish, nack, release, replay, sweep
-- In:  $1 seqs
-- Out: nothing
INSERT OR IGNORE INTO tampu_expiry SELECT m.expires, m.seq FROM json_each($1) j
CROSS JOIN tampu_message m ON m.seq = j.value WHERE m.expires IS NOT NULL;
INSERT OR IGNORE INTO tampu_key SELECT m.q, m.key, m.seq FROM json_each($1) j
CROSS JOIN tampu_message m ON m.seq = j.value WHERE m.key IS NOT NULL

-- name: extend_leases
-- Extends leases.
-- Run by: extend
-- In:  $1 now, rows: $2 seq, $3 lease, $4 q, $5 lease time
-- Out: seq, lease, until, whether cancel was requested, until before. An item without a row is LeaseLost.
SELECT seq, lease, $1 + $5, cancel, until FROM tampu_leased WHERE seq = $2 AND lease = $3 AND q = $4;
UPDATE tampu_leased SET until = $1 + $5, extended = $1 WHERE seq = $2 AND lease = $3 AND q = $4

-- name: set_max_attempts
-- Sets max_attempts of messages.
-- Run by: settle
-- In:  rows: $1 seq, $2 max_attempts
-- Out: nothing
UPDATE tampu_message SET max_attempts = $2 WHERE seq = $1

-- name: select_claim
-- The messages of a claim in a range.
-- Run by: ack of one claim
-- In:  $1 first and $2 last seq, $3 lease, $4 q
-- Out: seq, attempts
SELECT seq, attempts FROM tampu_leased WHERE seq BETWEEN $1 AND $2 AND lease = $3 AND q = $4 ORDER BY seq

-- name: end_claim
-- Ends the messages of a claim in a range.
-- Run by: ack of one claim
-- In:  $1 state number, $2 now, $3 first and $4 last seq, $5 lease
-- Out: nothing
INSERT INTO tampu_ended SELECT seq, q, $1, $2, attempts, lease FROM tampu_leased
WHERE seq BETWEEN $3 AND $4 AND lease = $5

-- name: delete_claim
-- Removes the leases of a claim in a range.
-- Run by: ack of one claim
-- In:  $1 first and $2 last seq, $3 lease
-- Out: nothing
DELETE FROM tampu_leased WHERE seq BETWEEN $1 AND $2 AND lease = $3

-- name: select_receipts
-- What tells whether acks are current.
-- Run by: ack of several claims
-- In:  $1 seqs
-- Out: seq, q, lease, attempts
SELECT l.seq, l.q, l.lease, l.attempts FROM json_each($1) j CROSS JOIN tampu_leased l ON l.seq = j.value

-- name: end_leases
-- Ends leased messages.
-- Run by: ack of several claims
-- In:  $1 state number, $2 now, $3 seqs
-- Out: nothing
INSERT INTO tampu_ended SELECT l.seq, l.q, $1, $2, l.attempts, l.lease FROM json_each($3) j
CROSS JOIN tampu_leased l ON l.seq = j.value

-- name: has_groups
-- Whether a group of a queue has a taken slot.
-- Run by: ack
-- In:  $1 q
-- Out: a row if one has
SELECT 1 FROM tampu_lane WHERE q = $1 LIMIT 1
