-- Statements of claim.

-- name: select_tokens
-- The tokens of a queue's rate. The caller holds the queue's lock.
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

-- name: claim_ready
-- Locks the head of a queue's index. Skips what other claims are taking.
-- The inner SELECT walks the primary key and stops; only its rows are locked, not those of the messages. Two columns
-- instead of twelve: 0.9 of the client's CPU for 100 messages (PyMySQL reads values and descriptions in Python).
-- Run by: claim
-- In:  $1 q, $2 limit
-- Out: one text: seq, attempts before, created, how far the id is ahead, max_attempts, expires or nothing, whether it has a
--      key, id and group in hexadecimal or nothing, rank, pos; and the body
SELECT CONCAT_WS(' ', m.seq, h.attempts, m.created, COALESCE(m.ahead, 0), m.max_attempts, COALESCE(m.expires, ''),
  m.word IS NOT NULL, COALESCE(HEX(m.id), ''), COALESCE(HEX(m.lane), ''), h.place, h.pos), m.body
FROM (SELECT place, pos, seq, attempts FROM tampu_ready FORCE INDEX (PRIMARY) WHERE q = $1 ORDER BY place, pos
  LIMIT $2 FOR UPDATE SKIP LOCKED) AS h
STRAIGHT_JOIN tampu_message m FORCE INDEX (PRIMARY) ON m.seq = h.seq

-- name: claim_offered
-- Locks the ready messages that the index has proposed. Skips those that others are taking or have taken.
-- Run by: claim, with an index in Redis
-- In:  $1 q, columns: $2 rank, $3 pos
-- Out: as `claim_ready`
SELECT CONCAT_WS(' ', m.seq, h.attempts, m.created, COALESCE(m.ahead, 0), m.max_attempts, COALESCE(m.expires, ''),
  m.word IS NOT NULL, COALESCE(HEX(m.id), ''), COALESCE(HEX(m.lane), ''), h.place, h.pos), m.body
FROM (SELECT place, pos, seq, attempts FROM tampu_ready FORCE INDEX (PRIMARY)
  WHERE (q, place, pos) IN ({($1, $2, $3)}) FOR UPDATE SKIP LOCKED) AS h
STRAIGHT_JOIN tampu_message m FORCE INDEX (PRIMARY) ON m.seq = h.seq

-- name: insert_leases
-- Inserts leases.
-- Run by: claim_ready
-- In:  $1 q, $2 lease, $3 lease time, $4 worker, $5 now, columns: $6 seq, $7 stamp, $8 attempts, $9 id, $10 group
-- Out: nothing
INSERT INTO tampu_leased (seq, lease, until, stamp, q, attempts, cancel, id, worker, lane, since)
VALUES {($6, $2, $5 + $3, $7, $1, $8, FALSE, $9, $4, $10, $5)}

-- name: delete_ready
-- Removes rows of `ready` that the caller has locked.
-- Run by: claim_ready
-- In:  $1 q, $2 rank, $3 positions
-- Out: nothing
DELETE FROM tampu_ready WHERE q = $1 AND place = $2 AND pos IN ($3) LIMIT #3

-- name: delete_placed
-- Removes what `insert_placed` recorded.
-- Run by: claim_ready, remove_waiting, rerank
-- In:  $1 q, $2 seqs
-- Out: nothing
DELETE FROM tampu_placed WHERE q = $1 AND seq IN ($2) LIMIT #2

-- name: select_keys_and_expiries
-- The keys and expiries of messages.
-- Run by: delete_keys_and_expiries
-- In:  $1 seqs
-- Out: seq, q, key, expires
SELECT seq, q, word, expires FROM tampu_message FORCE INDEX (PRIMARY) WHERE seq IN ($1)

-- name: delete_expiries
-- Removes expiries.
-- Run by: delete_keys_and_expiries
-- In:  columns: $1 expires, $2 seq
-- Out: nothing
DELETE FROM tampu_expiry WHERE {(at = $1 AND seq = $2) OR} LIMIT #1

-- name: delete_keys
-- Removes keys. Waits for a publish that replaces such a message.
-- Run by: delete_keys_and_expiries
-- In:  $1 q, columns: $2 key, $3 seq
-- Out: nothing
DELETE FROM tampu_key WHERE q = $1 AND word IN ($2) AND seq IN ($3) LIMIT #2

-- name: select_last_errors
-- The latest error of messages.
-- Run by: claim of messages that were delivered before
-- In:  $1 seqs
-- Out: seq, error of its latest failed attempt, where there was one
SELECT f.seq, f.error FROM tampu_failure f FORCE INDEX (PRIMARY) WHERE f.seq IN ($1)
  AND f.no = (SELECT l.no FROM tampu_failure l FORCE INDEX (PRIMARY) WHERE l.seq = f.seq ORDER BY l.no DESC LIMIT 1)

-- name: select_bodies
-- The bodies of messages.
-- Run by: claim, sweep, fair order
-- In:  $1 seqs
-- Out: seq, body
SELECT seq, body FROM tampu_message FORCE INDEX (PRIMARY) WHERE seq IN ($1)
