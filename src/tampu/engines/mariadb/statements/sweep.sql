-- Statements of sweep: promote, reap, expire. It does not wait for rows that others have locked.
-- `message row` stands for the columns of a MessageRow: seq, q, attempts, stamp, id, group, rank, max_attempts, expires,
-- whether it has a key.

-- name: select_next_due
-- The next due times.
-- Run by: sweep, maintenance
-- In:  nothing
-- Out: when the next delay, lease and expiry are due
SELECT (SELECT run_at FROM tampu_delayed FORCE INDEX (due) ORDER BY run_at LIMIT 1),
  (SELECT until FROM tampu_claim FORCE INDEX (PRIMARY) ORDER BY until LIMIT 1),
  (SELECT at FROM tampu_expiry FORCE INDEX (PRIMARY) ORDER BY at LIMIT 1)

-- name: begin_sweep
-- Locks the sweep: one process sweeps at a time, others do not wait for it.
-- Sets the lock timeout to a second, the least possible, until `end_sweep`: rows are read with SKIP LOCKED, this is for the
-- few other locks.
-- Run by: claim with work due, sweep
-- In:  nothing
-- Out: true if we may sweep
SET SESSION innodb_lock_wait_timeout = 1;
SELECT COUNT(*) FROM (SELECT n FROM tampu_latch WHERE n = 0 FOR UPDATE SKIP LOCKED) AS free

-- name: end_sweep
-- Restores the lock timeout for the rest of the commit.
-- Run by: claim with work due, sweep
-- In:  $1 seconds to wait for a lock
-- Out: nothing
SET SESSION innodb_lock_wait_timeout = $1

-- name: lock_due_delayed
-- Locks delayed messages that are due. Skips rows that others have locked.
-- Run by: sweep (promote)
-- In:  $1 now, $2 limit
-- Out: message row, lease, run_at
SELECT m.seq, m.q, d.attempts, m.created DIV 1000 + COALESCE(m.ahead, 0), m.id, m.lane, m.place, m.max_attempts,
  m.expires, m.word IS NOT NULL, d.lease, d.run_at
FROM (SELECT * FROM tampu_delayed FORCE INDEX (due) WHERE run_at <= $1 ORDER BY run_at, seq LIMIT $2
  FOR UPDATE SKIP LOCKED) AS d
STRAIGHT_JOIN tampu_message m FORCE INDEX (PRIMARY) ON m.seq = d.seq

-- name: delete_delayed
-- Removes rows that the caller has locked.
-- Run by: sweep (promote)
-- In:  $1 seqs
-- Out: nothing
DELETE FROM tampu_delayed WHERE seq IN ($1) LIMIT #1

-- name: lock_due_claims
-- Locks claims that are due. Skips rows that others have locked.
-- Run by: sweep (reap)
-- In:  $1 now, $2 limit
-- Out: until, lease, seqs
SELECT until, lease, seqs FROM tampu_claim FORCE INDEX (PRIMARY) WHERE until <= $1 ORDER BY until, lease LIMIT $2
FOR UPDATE SKIP LOCKED

-- name: lock_expired_leases
-- Locks the leases of claims, so that an extend runs before or after. Skips rows that others have locked.
-- Run by: sweep (reap)
-- In:  columns: $1 seq, $2 lease
-- Out: message row, lease, worker, whether cancel was requested, until, the rate of its group
SELECT m.seq, m.q, l.attempts, m.created DIV 1000 + COALESCE(m.ahead, 0), m.id, m.lane, m.place, m.max_attempts,
  m.expires, m.word IS NOT NULL, l.lease, l.worker, l.cancel, l.until,
  CASE WHEN m.lane IS NOT NULL THEN (SELECT u.pace FROM tampu_queue u WHERE u.q = m.q) END
FROM (SELECT * FROM tampu_leased FORCE INDEX (PRIMARY) WHERE seq IN ($1) AND (seq, lease) IN ({($1, $2)})
  FOR UPDATE SKIP LOCKED) AS l
STRAIGHT_JOIN tampu_message m FORCE INDEX (PRIMARY) ON m.seq = l.seq

-- name: select_busy_leases
-- Leases that exist but could not be locked, because others have locked them.
-- Run by: sweep (reap)
-- In:  columns: $1 seq, $2 lease
-- Out: seq, lease
SELECT seq, lease FROM tampu_leased FORCE INDEX (PRIMARY) WHERE seq IN ($1) AND (seq, lease) IN ({($1, $2)})

-- name: delete_leases
-- Removes leases that the caller has locked.
-- Run by: sweep (reap), take_leases
-- In:  $1 seqs
-- Out: nothing
DELETE FROM tampu_leased WHERE seq IN ($1) LIMIT #1

-- name: select_expired
-- Messages that may have expired.
-- Run by: sweep (expire)
-- In:  $1 now, $2 limit
-- Out: seq
SELECT seq FROM tampu_expiry FORCE INDEX (PRIMARY) WHERE at <= $1 ORDER BY at, seq LIMIT $2

-- name: lock_ready
-- Locks ready messages. Skips rows that others have locked.
-- Run by: lock_waiting
-- In:  columns: $1 q, $2 rank, $3 pos
-- Out: seq
SELECT seq FROM tampu_ready FORCE INDEX (PRIMARY) WHERE {(q = $1 AND place = $2 AND pos = $3) OR} FOR UPDATE SKIP LOCKED

-- name: lock_delayed
-- Locks delayed messages. Skips rows that others have locked.
-- Run by: lock_waiting
-- In:  $1 seqs
-- Out: seq
SELECT seq FROM tampu_delayed FORCE INDEX (PRIMARY) WHERE seq IN ($1) FOR UPDATE SKIP LOCKED

-- name: lock_held
-- Locks held messages. Skips rows that others have locked.
-- Run by: lock_waiting
-- In:  $1 seqs
-- Out: seq
SELECT seq FROM tampu_held FORCE INDEX (PRIMARY) WHERE seq IN ($1) FOR UPDATE SKIP LOCKED

-- name: select_long_bodies
-- Bodies with more than 15 fields. Only these can have `dead_at_deadline`.
-- Run by: sweep, claim
-- In:  $1 seqs
-- Out: seq, body
SELECT seq, body FROM tampu_message FORCE INDEX (PRIMARY) WHERE seq IN ($1) AND LEFT(body, 1) >= 0xDC
