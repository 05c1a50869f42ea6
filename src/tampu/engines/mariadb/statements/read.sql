-- Statements that read: messages by id, pages of a state, stats.

-- name: find_by_number
-- Finds messages by the number in an id that tampu made. Those of other tenants are not found.
-- Run by: find_messages, snapshot_find
-- In:  $1 tenant or NULL for any, $2 seqs
-- Out: seq, q, stamp
SELECT m.seq, m.q, m.created DIV 1000 + COALESCE(m.ahead, 0)
FROM tampu_message m FORCE INDEX (PRIMARY) STRAIGHT_JOIN tampu_queue u FORCE INDEX (PRIMARY) ON u.q = m.q
WHERE m.seq IN ($2) AND m.id IS NULL AND ($1 IS NULL OR u.tenant = $1)

-- name: find_by_own_id
-- Finds messages by an id that a user gave. Those of other tenants are not found.
-- Run by: find_messages, snapshot_find
-- In:  $1 tenant or NULL for any, $2 ids
-- Out: id, seq, q
SELECT m.id, m.seq, m.q FROM tampu_own_id i FORCE INDEX (PRIMARY)
STRAIGHT_JOIN tampu_message m FORCE INDEX (PRIMARY) ON m.seq = i.seq
STRAIGHT_JOIN tampu_queue u FORCE INDEX (PRIMARY) ON u.q = m.q
WHERE i.id IN ($2) AND ($1 IS NULL OR u.tenant = $1)

-- name: select_messages
-- Messages with their states.
-- Run by: get, list, verbs that answer with messages
-- In:  $1 seqs
-- Out: seq, q, created, stamp, max_attempts, expires, id, body, state number, attempts, run_at, ended at, reason,
--      whether cancel was requested, the last error; if it is leased: worker, until, since, extended
SELECT m.seq, m.q, m.created, m.created DIV 1000 + COALESCE(m.ahead, 0), m.max_attempts, m.expires, m.id, m.body,
  CASE WHEN r.seq IS NOT NULL OR s.seq IS NOT NULL THEN 0 WHEN e.seq IS NOT NULL THEN e.state
    WHEN l.seq IS NOT NULL THEN 2 WHEN d.seq IS NOT NULL THEN 1 WHEN x.seq IS NOT NULL THEN 5
    WHEN h.seq IS NOT NULL THEN 3 END,
  COALESCE(r.attempts, s.attempts, e.attempts, l.attempts, d.attempts, x.attempts, h.attempts),
  COALESCE(d.run_at, h.run_at), COALESCE(e.at, x.at), COALESCE(x.reason, h.reason), COALESCE(l.cancel, FALSE),
  (SELECT f.error FROM tampu_failure f FORCE INDEX (PRIMARY) WHERE f.seq = m.seq ORDER BY f.no DESC LIMIT 1),
  l.worker, l.until, l.since, l.extended
FROM tampu_message m FORCE INDEX (PRIMARY)
LEFT JOIN tampu_ready r FORCE INDEX (PRIMARY) ON r.q = m.q AND r.place = 0 AND r.pos = m.seq AND r.seq = m.seq
LEFT JOIN tampu_placed p FORCE INDEX (PRIMARY) ON p.q = m.q AND p.seq = m.seq
LEFT JOIN tampu_ready s FORCE INDEX (PRIMARY) ON s.q = p.q AND s.place = p.place AND s.pos = p.pos
LEFT JOIN tampu_ended e FORCE INDEX (PRIMARY) ON e.seq = m.seq
LEFT JOIN tampu_leased l FORCE INDEX (PRIMARY) ON l.seq = m.seq
LEFT JOIN tampu_delayed d FORCE INDEX (PRIMARY) ON d.seq = m.seq
LEFT JOIN tampu_dead x FORCE INDEX (PRIMARY) ON x.seq = m.seq
LEFT JOIN tampu_held h FORCE INDEX (PRIMARY) ON h.seq = m.seq
WHERE m.seq IN ($1)

-- name: find_correlated
-- Messages with a correlation id, oldest first.
-- Run by: trace
-- In:  $1 hash of tenant and correlation id, $2 limit
-- Out: seq
SELECT seq FROM tampu_correlation FORCE INDEX (PRIMARY) WHERE word = $1 ORDER BY seq LIMIT $2

-- name: select_failures
-- The failed attempts of a message, oldest first.
-- Run by: get of one message
-- In:  $1 seq
-- Out: attempt, at, outcome, worker, error, traceback
SELECT attempt, at, outcome, worker, error, traceback FROM tampu_failure WHERE seq = $1 ORDER BY no

-- name: select_result
-- The result of a message, until it expires.
-- Run by: get of one message
-- In:  $1 seq, $2 now or NULL (then the server's clock)
-- Out: the result
SELECT body FROM tampu_result WHERE seq = $1
  AND until > COALESCE($2, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))

-- name: page_ready
-- Ready messages in the order of delivery.
-- Run by: list
-- In:  $1 q, $2 rank, $3 pos to continue after, $4 limit
-- Out: seq, rank, pos
SELECT seq, place, pos FROM tampu_ready FORCE INDEX (PRIMARY)
WHERE q = $1 AND (place > $2 OR (place = $2 AND pos > $3)) ORDER BY place, pos LIMIT $4

-- name: page_delayed
-- Delayed messages in the order they fall due.
-- Run by: list
-- In:  $1 q, $2 run_at, $3 seq to continue after, $4 limit
-- Out: seq, run_at, seq
SELECT seq, run_at, seq FROM tampu_delayed FORCE INDEX (of_queue)
WHERE q = $1 AND (run_at > $2 OR (run_at = $2 AND seq > $3)) ORDER BY run_at, seq LIMIT $4

-- name: page_leased
-- Leased messages in publish order.
-- Run by: list
-- In:  $1 q, $2 seq to continue after, $3 limit
-- Out: seq, seq
SELECT seq, seq FROM tampu_leased FORCE INDEX (PRIMARY) WHERE q = $1 AND seq > $2 ORDER BY seq LIMIT $3

-- name: page_held
-- Held messages in publish order.
-- Run by: list
-- In:  $1 q, $2 seq to continue after, $3 limit
-- Out: seq, seq
SELECT seq, seq FROM tampu_held FORCE INDEX (of_queue) WHERE q = $1 AND seq > $2 ORDER BY seq LIMIT $3

-- name: page_dead
-- Dead messages in the order they died.
-- Run by: list
-- In:  $1 q, $2 at, $3 seq to continue after, $4 limit
-- Out: seq, at, seq
SELECT seq, at, seq FROM tampu_dead FORCE INDEX (of_queue)
WHERE q = $1 AND (at > $2 OR (at = $2 AND seq > $3)) ORDER BY at, seq LIMIT $4

-- name: page_endings
-- Messages that ended, one row per commit, oldest first.
-- Run by: list
-- In:  $1 q, $2 state number, $3 entry to continue from, $4 limit
-- Out: no, seqs
SELECT no, seqs FROM tampu_ending FORCE INDEX (PRIMARY) WHERE q = $1 AND state = $2 AND no >= $3 ORDER BY no LIMIT $4

-- name: select_still_ended
-- Those messages that are in the index of ended messages.
-- Run by: list
-- In:  $1 seqs
-- Out: seq
SELECT seq FROM tampu_ended FORCE INDEX (PRIMARY) WHERE seq IN ($1)

-- name: select_stats_queues
-- Queues, and how long the oldest message of each has been ready.
-- Run by: select_stats
-- In:  $1 tenant, $2 queue or NULL for all, $3 now or NULL (then the server's)
-- Out: q, name, when the oldest ready message was published, now
SELECT u.q, u.name, (
  SELECT m.created FROM tampu_message m FORCE INDEX (PRIMARY) WHERE m.seq = LEAST(
    COALESCE((SELECT r.seq FROM tampu_ready r FORCE INDEX (PRIMARY)
      WHERE r.q = u.q AND r.place = 0 ORDER BY r.pos LIMIT 1), 9223372036854775807),
    COALESCE((SELECT p.seq FROM tampu_placed p FORCE INDEX (PRIMARY)
      WHERE p.q = u.q ORDER BY p.seq LIMIT 1), 9223372036854775807))),
  COALESCE($3, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
FROM tampu_queue u FORCE INDEX (tenant_name) WHERE u.tenant = $1 AND ($2 IS NULL OR u.name = $2) ORDER BY u.name

-- name: select_stats_counts
-- Counts of messages by queue and state.
-- Run by: select_stats
-- In:  $1 qs
-- Out: q, state number, how many
SELECT q, kind, CAST(SUM(n) AS SIGNED) FROM tampu_tally FORCE INDEX (of_queue) WHERE q IN ($1) GROUP BY q, kind

-- name: count_ready
-- Counts the ready messages of a queue; 0 for a queue that does not exist.
-- Run by: maintenance
-- In:  $1 tenant, $2 queue
-- Out: how many
SELECT CAST(COALESCE(SUM(y.n), 0) AS SIGNED) FROM tampu_tally y FORCE INDEX (of_queue)
WHERE y.q = (SELECT u.q FROM tampu_queue u FORCE INDEX (tenant_name) WHERE u.tenant = $1 AND u.name = $2)
  AND y.kind = 0
