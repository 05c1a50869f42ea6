-- Statements of cancel, release, replay and rerank. `message row` stands for the columns of a MessageRow: seq, q,
-- attempts, stamp, id, group, rank, max_attempts, expires, whether it has a key.

-- name: select_rows
-- Messages, with 0 for the attempts.
-- Run by: remove_waiting, lock_waiting
-- In:  $1 seqs
-- Out: message row
SELECT m.seq, m.q, 0, m.seq >> 20, m.id, CAST(m.lane AS BLOB), m.rank, m.max_attempts, m.expires, m.key IS NOT NULL
FROM json_each($1) j CROSS JOIN tampu_message m ON m.seq = j.value

-- name: remove_delayed
-- Removes a message from delayed.
-- Run by: remove_waiting
-- In:  $1 seq
-- Out: attempts, if it was there
DELETE FROM tampu_delayed WHERE seq = $1 RETURNING attempts

-- name: remove_held
-- Removes a message from held.
-- Run by: remove_waiting
-- In:  $1 seq
-- Out: attempts, if it was there
DELETE FROM tampu_held WHERE seq = $1 RETURNING attempts

-- name: request_cancel
-- Asks the workers of leased messages to stop.
-- Run by: cancel
-- In:  $1 seqs
-- Out: seq, q, attempts, stamp, id of those that are leased
SELECT l.seq, l.q, l.attempts, l.seq >> 20, m.id FROM json_each($1) j
CROSS JOIN tampu_leased l ON l.seq = j.value CROSS JOIN tampu_message m ON m.seq = l.seq;
UPDATE tampu_leased SET cancel = 1 WHERE seq IN (SELECT value FROM json_each($1))

-- name: release_held
-- Removes messages from held, unless they wait for a slot of their group.
-- Run by: release of held messages
-- In:  $1 seqs
-- Out: message row, run_at, whether it waits for a slot of its group
SELECT m.seq, m.q, h.attempts, m.seq >> 20, m.id, CAST(m.lane AS BLOB), m.rank, m.max_attempts, m.expires,
  m.key IS NOT NULL,
  h.run_at, h.lane IS NOT NULL
FROM json_each($1) j CROSS JOIN tampu_held h ON h.seq = j.value CROSS JOIN tampu_message m ON m.seq = h.seq;
DELETE FROM tampu_held WHERE seq IN (SELECT value FROM json_each($1)) AND lane IS NULL

-- name: revive_dead
-- Removes messages from dead and sets their max_attempts. Deletes an expiry that has passed meanwhile.
-- Run by: replay
-- In:  $1 now, rows: $2 seq, $3 max_attempts from now on
-- Out: message row, with 0 for the attempts
UPDATE tampu_message SET expires = CASE WHEN expires > $1 THEN expires END, max_attempts = $3
WHERE seq = $2 AND (expires <= $1 OR max_attempts <> $3) AND EXISTS (SELECT 1 FROM tampu_dead WHERE seq = $2);
SELECT m.seq, m.q, 0, m.seq >> 20, m.id, CAST(m.lane AS BLOB), m.rank, m.max_attempts, m.expires, m.key IS NOT NULL
FROM tampu_dead d CROSS JOIN tampu_message m ON m.seq = d.seq WHERE d.seq = $2;
DELETE FROM tampu_dead WHERE seq = $2

-- name: select_rows_to_rerank
-- Live and dead messages of a queue, in the order of seq. A run of ready messages may begin before the seq.
-- Run by: rerank
-- In:  $1 q, $2 seq to continue after, $3 limit
-- Out: seq, created, body, rank, whether it is ready
SELECT m.seq, m.created, m.body, m.rank, live.ready FROM (
  SELECT seq, ready FROM (
    SELECT * FROM (SELECT m.seq AS seq, 1 AS ready FROM tampu_ready r INDEXED BY tampu_ready_seq
      CROSS JOIN tampu_message m ON m.seq BETWEEN max(r.seq, $2 + 1) AND r.last
      WHERE r.q = $1 AND r.seq >= coalesce((SELECT max(seq) FROM tampu_ready WHERE q = $1 AND seq <= $2), 0)
      ORDER BY r.seq LIMIT $3)
    UNION ALL SELECT * FROM (SELECT seq, 0 FROM tampu_delayed WHERE q = $1 AND seq > $2 ORDER BY seq LIMIT $3)
    UNION ALL SELECT * FROM (SELECT seq, 0 FROM tampu_leased WHERE q = $1 AND seq > $2 ORDER BY seq LIMIT $3)
    UNION ALL SELECT * FROM (SELECT seq, 0 FROM tampu_held WHERE q = $1 AND seq > $2 ORDER BY seq LIMIT $3)
    UNION ALL SELECT * FROM (SELECT seq, 0 FROM tampu_dead WHERE q = $1 AND seq > $2 ORDER BY seq LIMIT $3))
  ORDER BY seq LIMIT $3) AS live
CROSS JOIN tampu_message m ON m.seq = live.seq ORDER BY live.seq

-- name: set_rank
-- Changes the rank of messages.
-- Run by: rerank
-- In:  rows: $1 seq, $2 rank
-- Out: nothing
UPDATE tampu_message SET rank = $2 WHERE seq = $1
