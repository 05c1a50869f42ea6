-- Statements of sweep: promote, reap, expire. `message row` stands for the columns of a MessageRow: seq, q, attempts,
-- stamp, id, group, rank, max_attempts, expires, whether it has a key.

-- name: select_next_due
-- The next due times.
-- Run by: claim, sweep, maintenance
-- In:  nothing
-- Out: when the next delay, lease and expiry are due
SELECT (SELECT min(run_at) FROM tampu_delayed), (SELECT min(until) FROM tampu_claim), (SELECT min(at) FROM tampu_expiry)

-- name: lock_due_delayed
-- Delayed messages that are due.
-- Run by: sweep (promote)
-- In:  $1 now, $2 limit
-- Out: message row, lease, in the order they fell due
SELECT m.seq, m.q, d.attempts, m.seq >> 20, m.id, CAST(m.lane AS BLOB), m.rank, m.max_attempts, m.expires,
  m.key IS NOT NULL,
  d.lease
FROM tampu_delayed d CROSS JOIN tampu_message m ON m.seq = d.seq WHERE d.run_at <= $1 ORDER BY d.run_at, d.seq LIMIT $2

-- name: delete_delayed
-- Removes messages from delayed.
-- Run by: sweep (promote)
-- In:  $1 seqs
-- Out: nothing
DELETE FROM tampu_delayed WHERE seq IN (SELECT value FROM json_each($1))

-- name: lock_due_claims
-- Claims that are due.
-- Run by: sweep (reap)
-- In:  $1 now, $2 limit
-- Out: until, lease, seqs
SELECT until, lease, seqs FROM tampu_claim WHERE until <= $1 ORDER BY until, lease LIMIT $2

-- name: delete_leases
-- Removes leases.
-- Run by: sweep (reap), take_leases
-- In:  $1 seqs
-- Out: nothing
DELETE FROM tampu_leased WHERE seq IN (SELECT value FROM json_each($1))

-- name: delete_reaped_claims
-- Removes claims that were checked.
-- Run by: sweep (reap)
-- In:  rows: $1 until, $2 lease
-- Out: nothing
DELETE FROM tampu_claim WHERE until = $1 AND lease = $2

-- name: select_expired
-- Messages that have expired.
-- Run by: sweep (expire)
-- In:  $1 now, $2 limit
-- Out: seq
SELECT seq FROM tampu_expiry WHERE at <= $1 ORDER BY at, seq LIMIT $2

-- name: select_long_bodies
-- Bodies with more than 15 fields. Only these can have `dead_at_deadline`.
-- Run by: sweep, claim
-- In:  $1 seqs
-- Out: seq, body
SELECT m.seq, m.body FROM json_each($1) j CROSS JOIN tampu_message m ON m.seq = j.value
WHERE substr(m.body, 1, 1) >= x'dc'
