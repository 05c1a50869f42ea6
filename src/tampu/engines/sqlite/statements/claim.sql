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
SELECT f.seq, bytes(f.error) FROM json_each($1) j CROSS JOIN tampu_failure f ON f.seq = j.value ORDER BY f.seq, f.no

-- name: select_bodies
-- The bodies of messages.
-- Run by: claim, sweep, fair order
-- In:  $1 seqs
-- Out: seq, body
SELECT m.seq, m.body FROM json_each($1) j CROSS JOIN tampu_message m ON m.seq = j.value
