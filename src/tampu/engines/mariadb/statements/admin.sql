-- Statements of cancel, release, replay and rerank. `message row` stands for the columns of a MessageRow: seq, q, attempts,
-- stamp, id, group, rank, max_attempts, expires, whether it has a key.

-- name: locate_ready
-- Finds messages in `ready`.
-- Run by: remove_waiting, lock_waiting, rerank
-- In:  $1 seqs
-- Out: message row; rank and pos if it is ready and the primary key does not find it
SELECT m.seq, m.q, 0, m.created DIV 1000 + COALESCE(m.ahead, 0), m.id, m.lane, m.place, m.max_attempts,
  m.expires, m.word IS NOT NULL, p.place, p.pos
FROM tampu_message m FORCE INDEX (PRIMARY)
LEFT JOIN tampu_placed p FORCE INDEX (PRIMARY) ON p.q = m.q AND p.seq = m.seq WHERE m.seq IN ($1)

-- name: remove_ready
-- Removes messages from `ready`. Waits for a claim that is taking one.
-- Run by: remove_waiting, rerank
-- In:  columns: $1 q, $2 rank, $3 pos
-- Out: seq, attempts, rank, pos, lease
DELETE FROM tampu_ready WHERE {(q = $1 AND place = $2 AND pos = $3) OR} LIMIT #1
RETURNING seq, attempts, place, pos, lease

-- name: remove_delayed
-- Removes messages from `delayed`.
-- Run by: remove_waiting
-- In:  $1 seqs
-- Out: seq, attempts of those that were delayed
DELETE FROM tampu_delayed WHERE seq IN ($1) LIMIT #1 RETURNING seq, attempts

-- name: remove_held
-- Removes messages from `held`.
-- Run by: remove_waiting, release_held, next_in_group
-- In:  $1 seqs
-- Out: seq, attempts, run_at of those that were held
DELETE FROM tampu_held WHERE seq IN ($1) LIMIT #1 RETURNING seq, attempts, run_at

-- name: select_rows
-- The rows of messages.
-- Run by: revive_dead, next_in_group, purge_dead, remove_ended
-- In:  $1 seqs
-- Out: message row, with 0 for the attempts
SELECT m.seq, m.q, 0, m.created DIV 1000 + COALESCE(m.ahead, 0), m.id, m.lane, m.place, m.max_attempts,
  m.expires, m.word IS NOT NULL
FROM tampu_message m FORCE INDEX (PRIMARY) WHERE m.seq IN ($1)

-- name: lock_leases_to_cancel
-- Locks leases whose messages will be cancelled.
-- Run by: request_cancel
-- In:  $1 seqs
-- Out: seq, q, attempts, stamp, id of those that are leased
SELECT seq, q, attempts, stamp, id FROM tampu_leased FORCE INDEX (PRIMARY) WHERE seq IN ($1) FOR UPDATE

-- name: request_cancel
-- Asks the workers of leased messages to stop.
-- Run by: cancel
-- In:  $1 seqs
-- Out: nothing
UPDATE tampu_leased FORCE INDEX (PRIMARY) SET cancel = TRUE WHERE seq IN ($1)

-- name: release_held
-- Locks held messages.
-- Run by: release of held messages
-- In:  $1 seqs
-- Out: message row, run_at, whether it waits for a slot of its group
SELECT m.seq, m.q, h.attempts, m.created DIV 1000 + COALESCE(m.ahead, 0), m.id, m.lane, m.place, m.max_attempts,
  m.expires, m.word IS NOT NULL, h.run_at, h.lane IS NOT NULL
FROM (SELECT * FROM tampu_held FORCE INDEX (PRIMARY) WHERE seq IN ($1) FOR UPDATE) AS h
STRAIGHT_JOIN tampu_message m FORCE INDEX (PRIMARY) ON m.seq = h.seq

-- name: revive_dead
-- Removes messages from `dead`.
-- Run by: replay, purge_dead
-- In:  $1 seqs
-- Out: seq
DELETE FROM tampu_dead WHERE seq IN ($1) LIMIT #1 RETURNING seq

-- name: clear_past_expiry
-- Deletes expiries that have passed meanwhile.
-- Run by: revive_dead
-- In:  $1 seqs, $2 now
-- Out: nothing
UPDATE tampu_message FORCE INDEX (PRIMARY) SET expires = NULL WHERE seq IN ($1) AND expires <= $2

-- name: select_rows_to_rerank
-- Live and dead messages of a queue, in the order of seq.
-- Run by: rerank
-- In:  $1 q, $2 seq to continue after, $3 limit
-- Out: seq, created, body, rank, whether it is ready
SELECT m.seq, m.created, m.body, m.place, live.ready FROM (
  SELECT seq, ready FROM (
    (SELECT seq, TRUE AS ready FROM tampu_ready FORCE INDEX (PRIMARY) WHERE q = $1 AND place = 0 AND pos = seq AND pos > $2
      ORDER BY pos LIMIT $3)
    UNION ALL (SELECT seq, TRUE AS ready FROM tampu_placed FORCE INDEX (PRIMARY) WHERE q = $1 AND seq > $2 ORDER BY seq LIMIT $3)
    UNION ALL (SELECT seq, FALSE FROM tampu_delayed FORCE INDEX (PRIMARY) WHERE q = $1 AND seq > $2 ORDER BY seq LIMIT $3)
    UNION ALL (SELECT seq, FALSE FROM tampu_leased FORCE INDEX (PRIMARY) WHERE q = $1 AND seq > $2 ORDER BY seq LIMIT $3)
    UNION ALL (SELECT seq, FALSE FROM tampu_held FORCE INDEX (of_queue) WHERE q = $1 AND seq > $2 ORDER BY seq LIMIT $3)
    UNION ALL (SELECT seq, FALSE FROM tampu_dead FORCE INDEX (PRIMARY) WHERE q = $1 AND seq > $2 ORDER BY seq LIMIT $3)) AS s
  ORDER BY seq LIMIT $3) AS live
STRAIGHT_JOIN tampu_message m FORCE INDEX (PRIMARY) ON m.seq = live.seq ORDER BY m.seq

-- name: rerank
-- Changes the ranks of messages.
-- Run by: rerank
-- In:  columns: $1 seq, $2 rank
-- Out: nothing
UPDATE tampu_message FORCE INDEX (PRIMARY) SET place = ELT(FIELD(seq, $1), $2) WHERE seq IN ($1)
