-- Statements that read: messages by id, pages of a state, stats.

-- name: find_messages
-- Finds messages by id. Those of other tenants are not found.
-- Run by: get, and verbs that take ids
-- In:  $1 tenant, arrays: $2 number or NULL, $3 stamp, $4 id
-- Out: which item (from 1), seq, q
SELECT i.n, m.seq, m.q FROM unnest($2::int8[], $3::int8[], $4::uuid[]) WITH ORDINALITY AS i(seq, stamp, id, n)
CROSS JOIN LATERAL (
  SELECT m.seq, m.q FROM tampu.message m
  WHERE m.seq = i.seq AND m.id IS NULL AND m.created / 1000 + coalesce(m.ahead, 0) = i.stamp
  UNION ALL SELECT m.seq, m.q FROM tampu.message m WHERE m.id = i.id) AS m
JOIN tampu.queue u ON u.q = m.q AND u.tenant = $1::text

-- name: select_messages
-- Messages with their states, in the order of $1.
-- Run by: get, list, verbs that answer with messages
-- In:  $1 seqs
-- Out: seq, q, created, stamp, max_attempts, expires, id, body, state number, attempts, run_at, ended at, reason,
--      whether cancel was requested, the last error; if it is leased: worker, until, since, extended
SELECT m.seq, m.q, m.created, m.created / 1000 + coalesce(m.ahead, 0), m.max_attempts, m.expires, m.id, m.body,
  p.state, p.attempts, p.run_at, p.at, p.reason, p.cancel, f.error, p.worker, p.until, p.since, p.extended
FROM unnest($1::int8[]) WITH ORDINALITY AS s(seq, n)
CROSS JOIN LATERAL (SELECT * FROM tampu.message m WHERE m.seq = s.seq OFFSET 0) AS m
CROSS JOIN LATERAL (
  SELECT 0 AS state, attempts, NULL::int8 AS run_at, NULL::int8 AS at, NULL::bytea AS reason, false AS cancel,
    NULL::bytea AS worker, NULL::int8 AS until, NULL::int8 AS since, NULL::int8 AS extended
    FROM tampu.ready r WHERE r.q = m.q AND r.rank = 0 AND r.pos = m.seq AND r.seq = m.seq
  UNION ALL SELECT state, attempts, NULL, at, NULL, false, NULL, NULL, NULL, NULL FROM tampu.ended e WHERE e.seq = m.seq
  UNION ALL SELECT 2, attempts, NULL, NULL, NULL, cancel, worker, until, since, extended FROM tampu.leased l WHERE l.seq = m.seq
  UNION ALL SELECT 1, attempts, run_at, NULL, NULL, false, NULL, NULL, NULL, NULL FROM tampu.delayed d WHERE d.seq = m.seq
  UNION ALL SELECT 0, attempts, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL FROM tampu.ready r
    WHERE r.q = m.q AND r.seq = m.seq AND (r.rank <> 0 OR r.pos <> r.seq)
  UNION ALL SELECT 5, attempts, NULL, at, reason, false, NULL, NULL, NULL, NULL FROM tampu.dead d WHERE d.seq = m.seq
  UNION ALL SELECT 3, attempts, run_at, NULL, reason, false, NULL, NULL, NULL, NULL FROM tampu.held h WHERE h.seq = m.seq
  LIMIT 1) AS p
LEFT JOIN LATERAL (SELECT f.error FROM tampu.failure f WHERE f.seq = m.seq ORDER BY f.no DESC LIMIT 1) AS f ON true
ORDER BY s.n

-- name: find_correlated
-- Messages with a correlation id, oldest first.
-- Run by: trace
-- In:  $1 hash of tenant and correlation id, $2 limit
-- Out: seq
SELECT seq FROM tampu.correlation WHERE word = $1::bytea ORDER BY seq LIMIT $2::int8

-- name: select_failures
-- The failed attempts of a message, oldest first.
-- Run by: get of one message
-- In:  $1 seq
-- Out: attempt, at, outcome, worker, error, traceback
SELECT attempt, at, outcome, worker, error, traceback FROM tampu.failure WHERE seq = $1::int8 ORDER BY no

-- name: select_result
-- The result of a message, until it expires.
-- Run by: get of one message
-- In:  $1 seq, $2 now or NULL (then the server's clock)
-- Out: the result
SELECT body FROM tampu.result WHERE seq = $1::int8 AND until > coalesce($2::int8, (extract(epoch FROM statement_timestamp()) * 1000000)::int8)

-- name: page_ready
-- Ready messages in the order of delivery.
-- Run by: list
-- In:  $1 q, $2 rank, $3 pos to continue after, $4 limit
-- Out: seq, rank, pos
SELECT seq, rank, pos FROM tampu.ready WHERE q = $1::int8 AND (rank, pos) > ($2::int8, $3::int8)
ORDER BY q, rank, pos LIMIT $4::int8

-- name: page_delayed
-- Delayed messages in the order they fall due.
-- Run by: list
-- In:  $1 q, $2 run_at, $3 seq to continue after, $4 limit
-- Out: seq, run_at, seq
SELECT seq, run_at, seq FROM tampu.delayed WHERE q = $1::int8 AND (run_at, seq) > ($2::int8, $3::int8)
ORDER BY q, run_at, seq LIMIT $4::int8

-- name: page_leased
-- Leased messages in publish order.
-- Run by: list
-- In:  $1 q, $2 seq to continue after, $3 limit
-- Out: seq, seq
SELECT seq, seq FROM tampu.leased WHERE q = $1::int8 AND seq > $2::int8 ORDER BY seq LIMIT $3::int8

-- name: page_held
-- Held messages in publish order.
-- Run by: list
-- In:  $1 q, $2 seq to continue after, $3 limit
-- Out: seq, seq
SELECT seq, seq FROM tampu.held WHERE q = $1::int8 AND seq > $2::int8 ORDER BY q, seq LIMIT $3::int8

-- name: page_dead
-- Dead messages in the order they died.
-- Run by: list
-- In:  $1 q, $2 at, $3 seq to continue after, $4 limit
-- Out: seq, at, seq
SELECT seq, at, seq FROM tampu.dead WHERE q = $1::int8 AND (at, seq) > ($2::int8, $3::int8)
ORDER BY q, at, seq LIMIT $4::int8

-- name: page_endings
-- Messages that ended, one row per commit, oldest first.
-- Run by: list
-- In:  $1 q, $2 state number, $3 entry to continue from, $4 limit
-- Out: no, seqs
SELECT no, seqs FROM tampu.ending WHERE q = $1::int8 AND state = $2::int8 AND no >= $3::int8
ORDER BY q, state, no LIMIT $4::int8

-- name: select_still_ended
-- Those of the messages that are still in `ended`, in the order of $1.
-- Run by: list
-- In:  $1 seqs
-- Out: seq
SELECT e.seq FROM unnest($1::int8[]) WITH ORDINALITY AS s(seq, n)
CROSS JOIN LATERAL (SELECT e.seq FROM tampu.ended e WHERE e.seq = s.seq OFFSET 0) AS e ORDER BY s.n

-- name: select_stats
-- Counts of messages by queue and state, and how long the oldest has been ready.
-- Run by: stats
-- In:  $1 tenant, $2 queue or NULL for all, $3 now or NULL (then the server's clock)
-- Out: name, state number (NULL: nothing counted yet), how many, when the oldest ready message was published, now
SELECT u.name, t.kind, t.n, (
  SELECT m.created FROM tampu.message m WHERE m.seq = (
    SELECT min(o.seq) FROM (
      (SELECT r.seq FROM tampu.ready r WHERE r.q = u.q AND r.rank = 0 ORDER BY r.q, r.rank, r.pos LIMIT 1)
      UNION ALL
      (SELECT r.seq FROM tampu.ready r WHERE r.q = u.q AND (r.rank <> 0 OR r.pos <> r.seq) ORDER BY r.q, r.seq LIMIT 1)
    ) AS o)), coalesce($3::int8, (extract(epoch FROM statement_timestamp()) * 1000000)::int8)
FROM tampu.queue u
LEFT JOIN LATERAL (
  SELECT y.kind, sum(y.n)::int8 AS n FROM tampu.tally y WHERE y.q = u.q GROUP BY y.kind) AS t ON true
WHERE u.tenant = $1::text AND ($2::text IS NULL OR u.name = $2::text) ORDER BY u.name, t.kind

-- name: count_ready
-- Counts the ready messages of a queue; 0 for a queue that does not exist.
-- Run by: maintenance
-- In:  $1 tenant, $2 queue
-- Out: how many
SELECT coalesce(sum(y.n), 0)::int8 FROM tampu.tally y
WHERE y.q = (SELECT u.q FROM tampu.queue u WHERE u.tenant = $1::text AND u.name = $2::text) AND y.kind = 0
