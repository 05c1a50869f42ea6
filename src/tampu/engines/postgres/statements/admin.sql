-- Statements of cancel, release, replay and rerank. `message row` stands for the columns of a MessageRow: seq, q, attempts,
-- stamp, id, group, rank, max_attempts, expires, whether it has a key.

-- name: remove_waiting
-- Removes waiting messages from ready, delayed or held. Waits for a claim that is taking one.
-- Run by: cancel, expire, purge
-- In:  $1 seqs
-- Out: message row, state number it had. Only messages that were there
WITH card AS MATERIALIZED (
  SELECT m.seq, m.q, m.created / 1000 + coalesce(m.ahead, 0) AS stamp, m.id, m.lane, m.rank, m.max_attempts, m.expires,
    m.key IS NOT NULL AS named
  FROM unnest($1::int8[]) AS s(seq) CROSS JOIN LATERAL (SELECT * FROM tampu.message m WHERE m.seq = s.seq OFFSET 0) AS m),
plain AS MATERIALIZED (
  SELECT r.* FROM card c CROSS JOIN LATERAL (
    SELECT r.ctid AS place, r.seq, r.attempts FROM tampu.ready r
    WHERE r.q = c.q AND r.rank = 0 AND r.pos = c.seq AND r.seq = c.seq OFFSET 0 FOR UPDATE) AS r),
ranked AS MATERIALIZED (
  SELECT r.* FROM card c CROSS JOIN LATERAL (
    SELECT r.ctid AS place, r.seq, r.attempts FROM tampu.ready r
    WHERE r.q = c.q AND r.seq = c.seq AND (r.rank <> 0 OR r.pos <> r.seq) OFFSET 0 FOR UPDATE) AS r),
late AS MATERIALIZED (
  SELECT d.* FROM card c CROSS JOIN LATERAL (
    SELECT d.ctid AS place, d.seq, d.attempts FROM tampu.delayed d WHERE d.seq = c.seq OFFSET 0 FOR UPDATE) AS d),
kept AS MATERIALIZED (
  SELECT h.* FROM card c CROSS JOIN LATERAL (
    SELECT h.ctid AS place, h.seq, h.attempts FROM tampu.held h WHERE h.seq = c.seq OFFSET 0 FOR UPDATE) AS h),
out_ready AS (
  DELETE FROM tampu.ready WHERE ctid = ANY (ARRAY(SELECT place FROM plain UNION ALL SELECT place FROM ranked))),
out_delayed AS (DELETE FROM tampu.delayed WHERE ctid = ANY (ARRAY(SELECT place FROM late))),
out_held AS (DELETE FROM tampu.held WHERE ctid = ANY (ARRAY(SELECT place FROM kept))),
out AS MATERIALIZED (
  SELECT seq, attempts, 0 AS state FROM plain UNION ALL SELECT seq, attempts, 0 FROM ranked
  UNION ALL SELECT seq, attempts, 1 FROM late UNION ALL SELECT seq, attempts, 3 FROM kept)
SELECT m.seq, m.q, o.attempts, m.created / 1000 + coalesce(m.ahead, 0), m.id, m.lane, m.rank, m.max_attempts,
  m.expires, m.key IS NOT NULL, o.state
FROM out o CROSS JOIN LATERAL (SELECT * FROM tampu.message m WHERE m.seq = o.seq OFFSET 0) AS m

-- name: request_cancel
-- Asks the workers of leased messages to stop.
-- Run by: cancel
-- In:  $1 seqs
-- Out: seq, q, attempts, stamp, id of those that are leased
UPDATE tampu.leased SET cancel = true WHERE seq = ANY ($1::int8[]) RETURNING seq, q, attempts, stamp, id

-- name: release_held
-- Removes messages from held, unless they wait for a slot of their group.
-- Run by: release of held messages
-- In:  $1 seqs
-- Out: message row, run_at, whether it waits for a slot of its group
WITH found AS MATERIALIZED (
  SELECT h.* FROM unnest($1::int8[]) AS s(seq) CROSS JOIN LATERAL (
    SELECT h.ctid AS place, h.* FROM tampu.held h WHERE h.seq = s.seq OFFSET 0 FOR UPDATE) AS h),
out AS (DELETE FROM tampu.held WHERE ctid = ANY (ARRAY(SELECT place FROM found WHERE lane IS NULL)))
SELECT m.seq, m.q, f.attempts, m.created / 1000 + coalesce(m.ahead, 0), m.id, m.lane, m.rank, m.max_attempts,
  m.expires, m.key IS NOT NULL, f.run_at, f.lane IS NOT NULL
FROM found f CROSS JOIN LATERAL (SELECT * FROM tampu.message m WHERE m.seq = f.seq OFFSET 0) AS m ORDER BY m.seq

-- name: revive_dead
-- Removes messages from dead and sets their max_attempts. Deletes an expiry that has passed meanwhile.
-- Run by: replay
-- In:  $1 now, arrays: $2 seq, $3 max_attempts from now on
-- Out: message row, with 0 for the attempts
WITH gone AS (DELETE FROM tampu.dead WHERE seq = ANY ($2::int8[]) RETURNING seq),
given AS (SELECT * FROM unnest($2::int8[], $3::int8[]) AS i(seq, max_attempts) WHERE seq IN (SELECT seq FROM gone)),
changed AS (
  UPDATE tampu.message m SET expires = CASE WHEN m.expires > $1::int8 THEN m.expires END, max_attempts = i.max_attempts
  FROM given i
  WHERE m.seq = i.seq AND m.seq = ANY ($2::int8[]) AND (m.expires <= $1::int8 OR m.max_attempts <> i.max_attempts))
SELECT m.seq, m.q, 0, m.created / 1000 + coalesce(m.ahead, 0), m.id, m.lane, m.rank, i.max_attempts,
  CASE WHEN m.expires > $1::int8 THEN m.expires END, m.key IS NOT NULL
FROM given i CROSS JOIN LATERAL (SELECT * FROM tampu.message m WHERE m.seq = i.seq OFFSET 0) AS m

-- name: select_rows_to_rerank
-- Live and dead messages of a queue, in the order of seq.
-- Run by: rerank
-- In:  $1 q, $2 seq to continue after, $3 limit
-- Out: seq, created, body, rank, whether it is ready
WITH live AS MATERIALIZED (
  SELECT seq, ready FROM (
    (SELECT seq, true AS ready FROM tampu.ready WHERE q = $1::int8 AND rank = 0 AND pos = seq AND pos > $2::int8
      ORDER BY q, rank, pos LIMIT $3::int8)
    UNION ALL (SELECT seq, true AS ready FROM tampu.ready WHERE q = $1::int8 AND (rank <> 0 OR pos <> seq) AND seq > $2::int8
      ORDER BY q, seq LIMIT $3::int8)
    UNION ALL (SELECT seq, false FROM tampu.delayed WHERE q = $1::int8 AND seq > $2::int8 ORDER BY seq LIMIT $3::int8)
    UNION ALL (SELECT seq, false FROM tampu.leased WHERE q = $1::int8 AND seq > $2::int8 ORDER BY seq LIMIT $3::int8)
    UNION ALL (SELECT seq, false FROM tampu.held WHERE q = $1::int8 AND seq > $2::int8 ORDER BY q, seq LIMIT $3::int8)
    UNION ALL (SELECT seq, false FROM tampu.dead WHERE q = $1::int8 AND seq > $2::int8 ORDER BY seq LIMIT $3::int8)) AS s
  ORDER BY seq LIMIT $3::int8)
SELECT m.seq, m.created, m.body, m.rank, l.ready FROM live l
CROSS JOIN LATERAL (SELECT * FROM tampu.message m WHERE m.seq = l.seq OFFSET 0) AS m ORDER BY m.seq

-- name: rerank
-- Changes the ranks of messages. Ready rows are never updated in place: other sessions find them by rank and position,
-- and must not miss one.
-- Run by: rerank
-- In:  $1 q, arrays: $2 seq, $3 rank in ready, $4 rank of the message
-- Out: nothing
WITH item AS MATERIALIZED (SELECT * FROM unnest($2::int8[], $3::int8[]) AS i(seq, rank)),
plain AS MATERIALIZED (
  SELECT r.place FROM item i CROSS JOIN LATERAL (
    SELECT r.ctid AS place FROM tampu.ready r
    WHERE r.q = $1::int8 AND r.rank = 0 AND r.pos = i.seq AND r.seq = i.seq AND i.rank <> 0 OFFSET 0 FOR UPDATE) AS r),
ranked AS MATERIALIZED (
  SELECT r.place FROM item i CROSS JOIN LATERAL (
    SELECT r.ctid AS place FROM tampu.ready r
    WHERE r.q = $1::int8 AND r.seq = i.seq AND (r.rank <> 0 OR r.pos <> r.seq) AND r.rank <> i.rank OFFSET 0
    FOR UPDATE) AS r),
out AS (
  DELETE FROM tampu.ready WHERE ctid = ANY (ARRAY(SELECT place FROM plain UNION ALL SELECT place FROM ranked))
  RETURNING *),
back AS (
  INSERT INTO tampu.ready (rank, pos, seq, lease, q, attempts)
  SELECT ($3::int8[])[array_position($2::int8[], seq)], pos, seq, lease, q, attempts FROM out)
UPDATE tampu.message m SET rank = ($4::int8[])[array_position($2::int8[], seq)] WHERE seq = ANY ($2::int8[])
AND rank <> ($4::int8[])[array_position($2::int8[], seq)]
