-- Statements of trim and purge. `message row` stands for the columns of a MessageRow: seq, q, attempts, stamp, id, group,
-- rank, max_attempts, expires, whether it has a key.

-- name: select_next_queues
-- The next queues to trim.
-- Run by: select_queues_to_trim
-- In:  $1 continue after this q, $2 up to this q, $3 limit
-- Out: q
SELECT q FROM tampu_queue WHERE q > $1 AND q <= $2 ORDER BY q LIMIT $3

-- name: lock_oldest_endings
-- Rows of endings, oldest first.
-- Run by: trim, purge
-- In:  $1 q, $2 state number, $3 limit
-- Out: no, at, seqs
SELECT no, at, seqs FROM tampu_ending WHERE q = $1 AND state = $2 ORDER BY no LIMIT $3

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
DELETE FROM tampu_ending WHERE q = $1 AND state = $2 AND no IN (SELECT value FROM json_each($3))

-- name: remove_ended
-- Removes messages from `ended`.
-- Run by: trim, purge, remove
-- In:  $1 seqs
-- Out: message row
SELECT m.seq, m.q, e.attempts, m.seq >> 20, m.id, CAST(m.lane AS BLOB), m.rank, m.max_attempts, m.expires,
  m.key IS NOT NULL
FROM json_each($1) j CROSS JOIN tampu_ended e ON e.seq = j.value CROSS JOIN tampu_message m ON m.seq = e.seq;
DELETE FROM tampu_ended WHERE seq IN (SELECT value FROM json_each($1))

-- name: delete_ended
-- Removes messages from `ended`.
-- Run by: trim
-- In:  $1 seqs
-- Out: seq of those that were there
DELETE FROM tampu_ended WHERE seq IN (SELECT value FROM json_each($1)) RETURNING seq

-- name: purge_dead
-- Removes the oldest messages of a queue from `dead`.
-- Run by: purge
-- In:  $1 q, $2 limit, $3 died by this time
-- Out: message row
SELECT m.seq, m.q, d.attempts, m.seq >> 20, m.id, CAST(m.lane AS BLOB), m.rank, m.max_attempts, m.expires,
  m.key IS NOT NULL
FROM tampu_dead d CROSS JOIN tampu_message m ON m.seq = d.seq WHERE d.q = $1 AND d.at <= $3 ORDER BY d.at, d.seq LIMIT $2;
DELETE FROM tampu_dead WHERE seq IN (SELECT seq FROM tampu_dead WHERE q = $1 AND at <= $3 ORDER BY at, seq LIMIT $2)

-- name: remove_dead
-- Removes messages from `dead`.
-- Run by: purge
-- In:  $1 seqs
-- Out: message row of those that were there
SELECT m.seq, m.q, d.attempts, m.seq >> 20, m.id, CAST(m.lane AS BLOB), m.rank, m.max_attempts, m.expires,
  m.key IS NOT NULL
FROM json_each($1) j CROSS JOIN tampu_dead d ON d.seq = j.value CROSS JOIN tampu_message m ON m.seq = d.seq;
DELETE FROM tampu_dead WHERE seq IN (SELECT value FROM json_each($1))

-- name: delete_messages
-- Removes messages that are in no index any more, with their history and result.
-- Run by: trim, purge, remove
-- In:  $1 seqs
-- Out: nothing
DELETE FROM tampu_message WHERE seq IN (SELECT value FROM json_each($1));
DELETE FROM tampu_failure WHERE seq IN (SELECT value FROM json_each($1));
DELETE FROM tampu_correlation WHERE (word, seq) IN (
  SELECT c.word, c.seq FROM json_each($1) j CROSS JOIN tampu_correlation c INDEXED BY tampu_correlation_seq
  ON c.seq = j.value);
DELETE FROM tampu_result WHERE seq IN (SELECT value FROM json_each($1))

-- name: trim_results
-- Removes expired results.
-- Run by: trim
-- In:  $1 now, $2 limit
-- Out: seq
DELETE FROM tampu_result WHERE seq IN (SELECT seq FROM tampu_result WHERE until <= $1 ORDER BY until LIMIT $2)
RETURNING seq

-- name: trim_idempotency_keys
-- Removes idempotency keys whose window is over.
-- Run by: trim
-- In:  $1 now, $2 limit
-- Out: idempotency key
DELETE FROM tampu_idempotency WHERE (tenant, key) IN (
  SELECT tenant, key FROM tampu_idempotency WHERE until <= $1 ORDER BY until LIMIT $2) RETURNING key

-- name: trim_group_rates
-- Removes groups that have all their tokens back.
-- Run by: trim
-- In:  $1 now, $2 limit
-- Out: group
DELETE FROM tampu_pace WHERE (q, lane) IN (SELECT q, lane FROM tampu_pace WHERE spent <= $1 ORDER BY spent LIMIT $2)
RETURNING lane

-- name: select_rates_ahead
-- Groups that spent more than is possible by now, because a clock was ahead: those beyond
--      the slowest rate of any queue; in queues with a faster rate only once they are beyond that too.
-- Run by: trim
-- In:  $1 now, $2 limit
-- Out: q, group
SELECT p.q, CAST(p.lane AS BLOB) FROM tampu_pace p CROSS JOIN tampu_queue t ON t.q = p.q
WHERE p.spent > $1 + (SELECT max(pace * pace_burst) FROM tampu_queue) AND p.spent > $1 + t.pace * t.pace_burst
ORDER BY p.spent LIMIT $2

-- name: select_oldest_journal
-- The oldest records.
-- Run by: trim
-- In:  $1 limit
-- Out: first, n, at
SELECT first, n, at FROM tampu_journal ORDER BY first LIMIT $1

-- name: delete_journal
-- Removes records.
-- Run by: trim
-- In:  $1 first of each record
-- Out: nothing
DELETE FROM tampu_journal WHERE first IN (SELECT value FROM json_each($1))

-- name: select_later_ending
-- When the next messages ended that did not end in the future, because of a clock that was ahead.
-- Run by: trim
-- In:  $1 q, $2 state number, $3 no, $4 now
-- Out: at
SELECT at FROM (SELECT at FROM tampu_ending WHERE q = $1 AND state = $2 AND no > $3 ORDER BY no LIMIT 10000)
WHERE at <= $4 LIMIT 1

-- name: select_later_record
-- When the next record was written that is not from the future.
-- Run by: trim
-- In:  $1 first, $2 now
-- Out: at
SELECT at FROM (SELECT at FROM tampu_journal WHERE first > $1 ORDER BY first LIMIT 10000) WHERE at <= $2 LIMIT 1

-- name: has_endings
-- Whether messages of a queue have ended.
-- Run by: select_queues_to_trim
-- In:  $1 q, $2 state number
-- Out: a row if there are
SELECT 1 FROM tampu_ending WHERE q = $1 AND state = $2 LIMIT 1

-- name: select_read_marks
-- What the last trim has noted of the journal's readers.
-- Run by: select_unread_entries
-- In:  nothing
-- Out: four numbers in a text
SELECT value FROM tampu_meta WHERE name = 'read'

-- name: set_read_marks
-- Notes it.
-- Run by: select_unread_entries
-- In:  $1 four numbers in a text
-- Out: nothing
INSERT OR REPLACE INTO tampu_meta VALUES ('read', $1)
