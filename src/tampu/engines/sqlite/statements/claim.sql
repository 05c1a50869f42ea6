-- Statements of claim.

-- name: select_tokens
-- The tokens of a queue's rate.
-- Run by: claim from a queue with a rate
-- In:  $1 q
-- Out: tokens, tokens_at
SELECT tokens, tokens_at FROM tampu_queue WHERE q = $1

-- name: spend_tokens
-- Records the tokens that are left.
-- Run by: claim from a queue with a rate
-- In:  $1 q, $2 tokens left, $3 now
-- Out: nothing
UPDATE tampu_queue SET tokens = $2, tokens_at = $3 WHERE q = $1

-- name: delete_keys_and_expiries
-- Deletes expiry and key of messages that no longer wait.
-- Run by: claim, and other verbs that remove waiting messages
-- In:  $1 seqs
-- Out: nothing
DELETE FROM tampu_expiry WHERE (at, seq) IN (
  SELECT m.expires, m.seq FROM json_each($1) j CROSS JOIN tampu_message m ON m.seq = j.value WHERE m.expires IS NOT NULL);
DELETE FROM tampu_key WHERE (q, key) IN (
  SELECT m.q, m.key FROM json_each($1) j CROSS JOIN tampu_message m ON m.seq = j.value WHERE m.key IS NOT NULL)
AND seq IN (SELECT value FROM json_each($1))

-- name: select_last_errors
-- The errors of messages, the latest last.
-- Run by: claim of messages that were delivered before
-- In:  $1 seqs
-- Out: seq, error of a failed attempt
SELECT f.seq, CAST(f.error AS BLOB) FROM json_each($1) j
CROSS JOIN tampu_failure f ON f.seq = j.value ORDER BY f.seq, f.no

-- name: select_bodies
-- The bodies of messages.
-- Run by: claim, sweep, fair order
-- In:  $1 seqs
-- Out: seq, body
SELECT m.seq, m.body FROM json_each($1) j CROSS JOIN tampu_message m ON m.seq = j.value

-- name: select_first
-- The first messages of the ready index. Inside a run SQLite walks the sequence numbers upwards. With m.seq in
-- ORDER BY it would sort.
-- Run by: claim
-- In:  $1 q, $2 limit
-- Out: seq, attempts, created, 0, max_attempts, expires, whether it has a key, id, group, body
SELECT m.seq, r.attempts, m.created, 0, m.max_attempts, m.expires, m.key IS NOT NULL, m.id, m.lane, m.body
FROM tampu_ready r CROSS JOIN tampu_message m ON m.seq BETWEEN r.seq AND r.last
WHERE r.q = $1 ORDER BY r.rank, r.pos LIMIT $2

-- name: lease_first
-- Leases the first messages of the ready index. They are removed from it afterwards.
-- Run by: claim
-- In:  $1 lease, $2 until, $3 worker, $4 q, $5 limit, $6 now
-- Out: nothing
INSERT INTO tampu_leased (seq, q, lease, until, attempts, worker, cancel, since)
SELECT m.seq, r.q, $1, $2, r.attempts + 1, $3, 0, $6
FROM tampu_ready r CROSS JOIN tampu_message m ON m.seq BETWEEN r.seq AND r.last
WHERE r.q = $4 ORDER BY r.rank, r.pos LIMIT $5
