-- Statements of settle and extend. `message row` stands for the columns of a MessageRow: seq, q, attempts, stamp, id, group,
-- rank, max_attempts, expires, whether it has a key.

-- name: ack
-- Acks of one claim. The DELETE is the fence: whoever deletes the row settles it.
-- Run by: settle
-- In:  $1 seqs, $2 lease, $3 q
-- Out: of those that had this lease, one text: seq, attempts, stamp, until, id and group in hexadecimal or nothing
DELETE FROM tampu_leased WHERE seq IN ($1) AND lease = $2 AND q = $3 LIMIT #1
RETURNING CONCAT_WS(' ', seq, attempts, stamp, until, COALESCE(HEX(id), ''), COALESCE(HEX(lane), ''))

-- name: insert_acked
-- Puts acked messages into the index of ended messages.
-- Run by: ack
-- In:  $1 lease, $2 q, $3 now, $4 state number, columns: $5 seq, $6 attempts
-- Out: nothing
INSERT INTO tampu_ended (seq, at, lease, q, attempts, state) VALUES {($5, $3, $1, $2, $6, $4)}

-- name: delete_whole_claim
-- Deletes the claim's row for the reaper, if these were all its messages.
-- Run by: ack
-- In:  $1 lease, $2 the claim's until, $3 the seqs, packed
-- Out: nothing
DELETE FROM tampu_claim WHERE until = $2 AND lease = $1 AND seqs = $3 LIMIT 1

-- name: take_leases
-- Locks leases that end. Locking the row is the fence: whoever locks it settles it.
-- Run by: settle
-- In:  columns: $1 seq, $2 lease, $3 q
-- Out: message row, lease, worker, whether cancel was requested, the rate of its group
SELECT m.seq, m.q, l.attempts, m.created DIV 1000 + COALESCE(m.ahead, 0), m.id, m.lane, m.place, m.max_attempts,
  m.expires, m.word IS NOT NULL, l.lease, l.worker, l.cancel,
  CASE WHEN m.lane IS NOT NULL THEN (SELECT u.pace FROM tampu_queue u WHERE u.q = m.q) END
FROM (SELECT * FROM tampu_leased FORCE INDEX (PRIMARY)
  WHERE seq IN ($1) AND (seq, lease, q) IN ({($1, $2, $3)}) FOR UPDATE) AS l
STRAIGHT_JOIN tampu_message m FORCE INDEX (PRIMARY) ON m.seq = l.seq

-- name: find_settled
-- Finds what a settled lease led to, by its settle marker. Its snapshot is newer than that of the fence, so of two equal
-- settles at the same time, the second finds what the first did.
-- Run by: settle, for receipts that are not current any more
-- In:  columns: $1 q, $2 seq, $3 the settle marker that the verb leaves
-- Out: seq, settle marker, state number, stamp, id
SELECT e.seq, e.lease, e.state, m.created DIV 1000 + COALESCE(m.ahead, 0), m.id
FROM tampu_ended e FORCE INDEX (PRIMARY) STRAIGHT_JOIN tampu_message m FORCE INDEX (PRIMARY) ON m.seq = e.seq
WHERE e.seq IN ($2) AND (e.seq, e.lease, e.q) IN ({($2, $3, $1)});
SELECT d.seq, d.lease, 5, m.created DIV 1000 + COALESCE(m.ahead, 0), m.id
FROM tampu_dead d FORCE INDEX (PRIMARY) STRAIGHT_JOIN tampu_message m FORCE INDEX (PRIMARY) ON m.seq = d.seq
WHERE d.seq IN ($2) AND (d.seq, d.lease, d.q) IN ({($2, $3, $1)});
SELECT d.seq, d.lease, 1, m.created DIV 1000 + COALESCE(m.ahead, 0), m.id
FROM tampu_delayed d FORCE INDEX (PRIMARY) STRAIGHT_JOIN tampu_message m FORCE INDEX (PRIMARY) ON m.seq = d.seq
WHERE d.seq IN ($2) AND (d.seq, d.lease, d.q) IN ({($2, $3, $1)});
SELECT h.seq, h.lease, 3, m.created DIV 1000 + COALESCE(m.ahead, 0), m.id
FROM tampu_held h FORCE INDEX (PRIMARY) STRAIGHT_JOIN tampu_message m FORCE INDEX (PRIMARY) ON m.seq = h.seq
WHERE h.seq IN ($2) AND (h.seq, h.lease, h.q) IN ({($2, $3, $1)});
SELECT r.seq, r.lease, 0, m.created DIV 1000 + COALESCE(m.ahead, 0), m.id
FROM tampu_placed p FORCE INDEX (PRIMARY)
STRAIGHT_JOIN tampu_ready r FORCE INDEX (PRIMARY) ON r.q = p.q AND r.place = p.place AND r.pos = p.pos
STRAIGHT_JOIN tampu_message m FORCE INDEX (PRIMARY) ON m.seq = r.seq
WHERE ({(p.q = $1 AND p.seq = $2) OR}) AND (r.seq, r.lease) IN ({($2, $3)})

-- name: upsert_results
-- Stores results.
-- Run by: ack with a result, import
-- In:  columns: $1 seq, $2 until, $3 body
-- Out: nothing
INSERT INTO tampu_result (seq, until, body) VALUES {($1, $2, $3)}
ON DUPLICATE KEY UPDATE until = VALUES(until), body = VALUES(body)

-- name: insert_ended
-- Puts messages into the index of ended messages.
-- Run by: settle, cancel, expire
-- In:  $1 now, columns: $2 seq, $3 lease, $4 q, $5 attempts, $6 state number
-- Out: nothing
INSERT INTO tampu_ended (seq, at, lease, q, attempts, state) VALUES {($2, $1, $3, $4, $5, $6)}

-- name: insert_dead
-- Puts messages into the index of dead messages.
-- Run by: reject, sweep
-- In:  $1 now, columns: $2 seq, $3 lease, $4 q, $5 attempts, $6 reason
-- Out: nothing
INSERT INTO tampu_dead (seq, at, lease, q, attempts, reason) VALUES {($2, $1, $3, $4, $5, $6)}

-- name: insert_failures
-- Stores failed attempts, for the history of their messages.
-- Run by: settle, sweep
-- In:  $1 now, columns: $2 seq, $3 attempt, $4 outcome, $5 worker, $6 error, $7 traceback
-- Out: nothing
INSERT INTO tampu_failure (seq, no, at, attempt, outcome, worker, error, traceback)
VALUES {($2, NEXTVAL(tampu_entry), $1, $3, $4, $5, $6, $7)}

-- name: restore_keys_and_expiries
-- Restores the expiry of messages that wait again, and their key if no newer message has it.
-- Run by: nack, release, replay, sweep
-- In:  $1 seqs
-- Out: nothing
INSERT INTO tampu_expiry (at, seq) SELECT m.expires, m.seq FROM tampu_message m
WHERE m.seq IN ($1) AND m.expires IS NOT NULL ON DUPLICATE KEY UPDATE seq = VALUES(seq);
INSERT INTO tampu_key (q, word, seq) SELECT m.q, m.word, m.seq FROM tampu_message m
WHERE m.seq IN ($1) AND m.word IS NOT NULL ON DUPLICATE KEY UPDATE seq = tampu_key.seq

-- name: delete_settled_claims
-- Removes the rows of claims that are completely settled: the reaper need not check them.
-- Run by: settle, extend, delete_reaped_claims
-- In:  columns: $1 until, $2 lease
-- Out: nothing
DELETE FROM tampu_claim WHERE {(until = $1 AND lease = $2) OR} LIMIT #1

-- name: lock_leases_to_extend
-- Locks leases to extend.
-- Run by: extend
-- In:  columns: $1 seq, $2 lease, $3 q
-- Out: seq, lease, until, whether cancel was requested. An item without a row is LeaseLost.
SELECT seq, lease, until, cancel FROM tampu_leased FORCE INDEX (PRIMARY)
WHERE seq IN ($1) AND (seq, lease, q) IN ({($1, $2, $3)})
FOR UPDATE

-- name: extend_leases
-- Extends leases.
-- Run by: extend
-- In:  $1 until, $2 seqs of leases that the caller has locked, $3 now
-- Out: nothing
UPDATE tampu_leased FORCE INDEX (PRIMARY) SET until = $1, extended = $3 WHERE seq IN ($2)

-- name: set_max_attempts
-- Sets max_attempts of messages.
-- Run by: settle, revive_dead
-- In:  columns: $1 seq, $2 max_attempts
-- Out: nothing
UPDATE tampu_message FORCE INDEX (PRIMARY) SET max_attempts = ELT(FIELD(seq, $1), $2) WHERE seq IN ($1)
