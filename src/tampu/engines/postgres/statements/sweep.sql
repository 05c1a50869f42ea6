-- Statements of sweep: promote, reap, expire. It does not wait for rows that others have locked.
-- `message row` stands for the columns of a MessageRow: seq, q, attempts, stamp, id, group, rank, max_attempts, expires,
-- whether it has a key.

-- name: select_next_due
-- The next due times. Does not use min(): on an empty table that may be planned as a scan.
-- Run by: sweep, maintenance
-- In:  nothing
-- Out: when the next delay, lease and expiry are due
SELECT (SELECT run_at FROM tampu.delayed ORDER BY run_at LIMIT 1),
  (SELECT until FROM tampu.claim ORDER BY until LIMIT 1),
  (SELECT at FROM tampu.expiry ORDER BY at LIMIT 1)

-- name: begin_sweep
-- Locks the sweep: one process sweeps at a time, others do not wait for it.
-- Sets a short lock timeout until `end_sweep`: rows are read with SKIP LOCKED, this is for the few other locks.
-- Run by: claim with work due, sweep
-- In:  nothing
-- Out: true if we may sweep
SELECT pg_try_advisory_xact_lock(hashtextextended('tampu.sweep', 7461)),
  set_config('tampu_usual.lock_timeout', current_setting('lock_timeout'), true), set_config('lock_timeout', '200ms', true)

-- name: end_sweep
-- Restores the lock timeout for the rest of the commit.
-- Run by: claim with work due, sweep
-- In:  nothing
-- Out: nothing of use
SELECT set_config('lock_timeout', current_setting('tampu_usual.lock_timeout'), true)

-- name: lock_due_delayed
-- Locks delayed messages that are due. Skips rows that others have locked.
-- Run by: sweep (promote)
-- In:  $1 now, $2 limit
-- Out: message row, lease, in the order they fell due
WITH due AS MATERIALIZED (
  SELECT d.* FROM tampu.delayed d WHERE d.run_at <= $1::int8 ORDER BY d.run_at, d.seq
  LIMIT $2::int8 FOR UPDATE SKIP LOCKED)
SELECT m.seq, m.q, d.attempts, m.created / 1000 + coalesce(m.ahead, 0), m.id, m.lane, m.rank, m.max_attempts,
  m.expires, m.key IS NOT NULL, d.lease
FROM due d CROSS JOIN LATERAL (SELECT * FROM tampu.message m WHERE m.seq = d.seq OFFSET 0) AS m
ORDER BY d.run_at, d.seq

-- name: delete_delayed
-- Removes rows that the caller has locked.
-- Run by: sweep (promote)
-- In:  $1 seqs
-- Out: nothing
DELETE FROM tampu.delayed WHERE seq = ANY ($1::int8[])

-- name: lock_due_claims
-- Locks claims that are due. Skips rows that others have locked.
-- Run by: sweep (reap)
-- In:  $1 now, $2 limit
-- Out: until, lease, seqs
SELECT until, lease, seqs FROM tampu.claim WHERE until <= $1::int8 ORDER BY until, lease LIMIT $2::int8
FOR UPDATE SKIP LOCKED

-- name: lock_expired_leases
-- Locks the leases of claims, so that an extend runs before or after. Skips rows that others have locked.
-- Run by: sweep (reap)
-- In:  arrays in the order of seq: $1 seq, $2 lease
-- Out: message row, lease, worker, whether cancel was requested, until, the rate of its group
WITH left_over AS MATERIALIZED (
  SELECT l.* FROM unnest($1::int8[], $2::int8[]) AS i(seq, lease) CROSS JOIN LATERAL (
    SELECT * FROM tampu.leased l WHERE l.seq = i.seq AND l.lease = i.lease OFFSET 0 FOR UPDATE SKIP LOCKED) AS l)
SELECT m.seq, m.q, l.attempts, l.stamp, m.id, m.lane, m.rank, m.max_attempts, m.expires, m.key IS NOT NULL,
  l.lease, l.worker, l.cancel, l.until,
  CASE WHEN m.lane IS NOT NULL THEN (SELECT u.pace FROM tampu.queue u WHERE u.q = m.q) END
FROM left_over l CROSS JOIN LATERAL (SELECT * FROM tampu.message m WHERE m.seq = l.seq OFFSET 0) AS m

-- name: select_busy_leases
-- Leases that exist but could not be locked, because others have locked them.
-- Run by: sweep (reap)
-- In:  arrays: $1 seq, $2 lease
-- Out: seq, lease
SELECT l.seq, l.lease FROM unnest($1::int8[], $2::int8[]) AS i(seq, lease) CROSS JOIN LATERAL (
  SELECT l.seq, l.lease FROM tampu.leased l WHERE l.seq = i.seq AND l.lease = i.lease OFFSET 0) AS l

-- name: delete_leases
-- Removes leases that the caller has locked.
-- Run by: sweep (reap)
-- In:  $1 seqs
-- Out: nothing
DELETE FROM tampu.leased WHERE seq = ANY ($1::int8[])

-- name: delete_reaped_claims
-- Removes claims that the caller has locked and checked.
-- Run by: sweep (reap)
-- In:  arrays: $1 until, $2 lease
-- Out: nothing
DELETE FROM tampu.claim WHERE ctid = ANY (ARRAY(
  SELECT c.ctid FROM unnest($1::int8[], $2::int8[]) AS i(until, lease) CROSS JOIN LATERAL (
    SELECT ctid FROM tampu.claim c WHERE c.until = i.until AND c.lease = i.lease OFFSET 0) AS c))

-- name: select_expired
-- Messages that may have expired.
-- Run by: sweep (expire)
-- In:  $1 now, $2 limit
-- Out: seq
SELECT seq FROM tampu.expiry WHERE at <= $1::int8 ORDER BY at, seq LIMIT $2::int8

-- name: lock_waiting
-- Locks messages in ready, delayed or held. Skips rows that others have locked.
-- Run by: sweep (expire)
-- In:  $1 seqs
-- Out: message row, with 0 for the attempts
WITH card AS MATERIALIZED (
  SELECT m.seq, m.q, 0, m.created / 1000 + coalesce(m.ahead, 0), m.id, m.lane, m.rank, m.max_attempts, m.expires,
    m.key IS NOT NULL
  FROM unnest($1::int8[]) AS s(seq) CROSS JOIN LATERAL (SELECT * FROM tampu.message m WHERE m.seq = s.seq OFFSET 0) AS m),
plain AS MATERIALIZED (
  SELECT c.* FROM card c CROSS JOIN LATERAL (
    SELECT 1 FROM tampu.ready r
    WHERE r.q = c.q AND r.rank = 0 AND r.pos = c.seq AND r.seq = c.seq OFFSET 0 FOR UPDATE SKIP LOCKED) AS r),
ranked AS MATERIALIZED (
  SELECT c.* FROM card c CROSS JOIN LATERAL (
    SELECT 1 FROM tampu.ready r
    WHERE r.q = c.q AND r.seq = c.seq AND (r.rank <> 0 OR r.pos <> r.seq) OFFSET 0 FOR UPDATE SKIP LOCKED) AS r),
late AS MATERIALIZED (
  SELECT c.* FROM card c CROSS JOIN LATERAL (
    SELECT 1 FROM tampu.delayed d WHERE d.seq = c.seq OFFSET 0 FOR UPDATE SKIP LOCKED) AS d),
kept AS MATERIALIZED (
  SELECT c.* FROM card c CROSS JOIN LATERAL (
    SELECT 1 FROM tampu.held h WHERE h.seq = c.seq OFFSET 0 FOR UPDATE SKIP LOCKED) AS h)
SELECT * FROM plain UNION ALL SELECT * FROM ranked UNION ALL SELECT * FROM late UNION ALL SELECT * FROM kept

-- name: select_long_bodies
-- Bodies with more than 15 fields. Only these can have `dead_at_deadline`.
-- Run by: sweep, claim
-- In:  $1 seqs
-- Out: seq, body
SELECT m.seq, m.body FROM tampu.message m WHERE m.seq = ANY ($1::int8[]) AND substring(m.body FROM 1 FOR 1) >= '\xdc'
