-- Statements of groups: slots, rates, the next messages, and fair turns. The callers hold the groups' locks.
-- `message row` stands for the columns of a MessageRow: seq, q, attempts, stamp, id, group, rank, max_attempts, expires,
-- whether it has a key.

-- name: set_group_limits
-- Sets how many messages of a group may be leased at once, and the rate of each group.
-- Run by: publish, regroup
-- In:  $1 q, $2 slots of a group, $3 microseconds for a token or NULL, $4 how many tokens are saved up
-- Out: nothing
UPDATE tampu.queue SET places = $2::int8, pace = $3::int8, pace_burst = $4::int8
WHERE q = $1::int8 AND (coalesce(places, 0), pace, pace_burst) IS DISTINCT FROM ($2::int8, $3::int8, $4::int8)

-- name: select_slots
-- The messages that have a slot of their group.
-- Run by: publish, settle, sweep, regroup
-- In:  arrays: $1 q, $2 group
-- Out: q, group, slots, rate and burst of its queue, seq that has a slot; or one row without seq
SELECT i.q, i.lane, u.places, u.pace, u.pace_burst, l.seq FROM unnest($1::int8[], $2::bytea[]) AS i(q, lane)
CROSS JOIN LATERAL (SELECT u.places, u.pace, u.pace_burst FROM tampu.queue u WHERE u.q = i.q OFFSET 0) AS u
LEFT JOIN LATERAL (SELECT l.seq FROM tampu.lane l WHERE l.q = i.q AND l.lane = i.lane OFFSET 0) AS l ON true

-- name: select_group_rates
-- What groups have spent of their rate, and which of their messages are leased.
-- Run by: publish, settle, sweep in a queue with a group rate
-- In:  arrays: $1 q, $2 group
-- Out: q, group, when all spent tokens are back (NULL: they are), seq that has a slot and is leased; or
--      one row without seq
SELECT i.q, i.lane, p.spent, c.seq FROM unnest($1::int8[], $2::bytea[]) AS i(q, lane)
LEFT JOIN LATERAL (SELECT p.spent FROM tampu.pace p WHERE p.q = i.q AND p.lane = i.lane OFFSET 0) AS p ON true
LEFT JOIN LATERAL (
  SELECT l.seq FROM (SELECT l.seq FROM tampu.lane l WHERE l.q = i.q AND l.lane = i.lane OFFSET 0) AS l
  CROSS JOIN LATERAL (SELECT FROM tampu.leased c WHERE c.seq = l.seq OFFSET 0) AS c OFFSET 0) AS c ON true

-- name: insert_slots
-- Adds slots.
-- Run by: publish, settle, sweep, regroup
-- In:  arrays: $1 q, $2 group, $3 seq
-- Out: nothing
INSERT INTO tampu.lane (q, lane, seq) SELECT * FROM unnest($1::int8[], $2::bytea[], $3::int8[])

-- name: delete_slots
-- Removes slots. The next messages stay held.
-- Run by: groups with a rate
-- In:  arrays: $1 q, $2 group, $3 seq
-- Out: nothing
DELETE FROM tampu.lane WHERE ctid = ANY (ARRAY(
  SELECT l.place FROM unnest($1::int8[], $2::bytea[], $3::int8[]) AS i(q, lane, seq) CROSS JOIN LATERAL (
    SELECT l.ctid AS place FROM tampu.lane l WHERE l.q = i.q AND l.lane = i.lane AND l.seq = i.seq OFFSET 0) AS l))

-- name: release_slots
-- Removes slots, and removes the next messages of their groups from held.
-- Run by: settle, cancel, expire, purge
-- In:  arrays: $1 q, $2 group, $3 seq that had a slot; $4 limit of messages of a group that follow
-- Out: message row, run_at of the next messages. In groups with a rate they stay held: where a slot was removed
--      there is a row with only q and group
WITH over AS MATERIALIZED (
  SELECT i.q, i.lane, l.place FROM unnest($1::int8[], $2::bytea[], $3::int8[]) AS i(q, lane, seq)
  LEFT JOIN LATERAL (
    SELECT l.ctid AS place FROM tampu.lane l WHERE l.q = i.q AND l.lane = i.lane AND l.seq = i.seq OFFSET 0) AS l ON true),
gone AS (DELETE FROM tampu.lane WHERE ctid = ANY (ARRAY(SELECT place FROM over))),
open AS MATERIALIZED (
  SELECT g.q, g.lane, greatest(coalesce(u.places, 0), 1)
    + g.leaving - (SELECT count(*) FROM tampu.lane l WHERE l.q = g.q AND l.lane = g.lane) AS room,
    u.pace, g.leaving
  FROM (SELECT q, lane, count(place) AS leaving FROM over GROUP BY q, lane) AS g
  CROSS JOIN LATERAL (SELECT u.places, u.pace FROM tampu.queue u WHERE u.q = g.q OFFSET 0) AS u),
next AS MATERIALIZED (
  SELECT h.* FROM open o CROSS JOIN LATERAL (
    SELECT h.ctid AS place, h.* FROM tampu.held h WHERE h.q = o.q AND h.lane = o.lane
    ORDER BY h.q, h.lane, h.seq LIMIT least(greatest(o.room, 0), $4::int8)) AS h
  WHERE o.pace IS NULL),
out AS (DELETE FROM tampu.held WHERE ctid = ANY (ARRAY(SELECT place FROM next)))
SELECT m.seq, m.q, n.attempts, m.created / 1000 + coalesce(m.ahead, 0), m.id, m.lane, m.rank, m.max_attempts,
  m.expires, m.key IS NOT NULL, n.run_at
FROM next n CROSS JOIN LATERAL (SELECT * FROM tampu.message m WHERE m.seq = n.seq OFFSET 0) AS m
UNION ALL
SELECT NULL, o.q, NULL, NULL, NULL, o.lane, NULL, NULL, NULL, NULL, NULL FROM open o WHERE o.pace IS NOT NULL AND o.leaving > 0
ORDER BY 1

-- name: next_in_group
-- Removes the next messages of groups from held.
-- Run by: settle, sweep in groups with a rate
-- In:  arrays: $1 q, $2 group, $3 limit
-- Out: message row, run_at
WITH next AS MATERIALIZED (
  SELECT h.* FROM unnest($1::int8[], $2::bytea[], $3::int8[]) AS o(q, lane, room) CROSS JOIN LATERAL (
    SELECT h.ctid AS place, h.* FROM tampu.held h WHERE h.q = o.q AND h.lane = o.lane
    ORDER BY h.q, h.lane, h.seq LIMIT o.room) AS h),
out AS (DELETE FROM tampu.held WHERE ctid = ANY (ARRAY(SELECT place FROM next)))
SELECT m.seq, m.q, n.attempts, m.created / 1000 + coalesce(m.ahead, 0), m.id, m.lane, m.rank, m.max_attempts,
  m.expires, m.key IS NOT NULL, n.run_at
FROM next n CROSS JOIN LATERAL (SELECT * FROM tampu.message m WHERE m.seq = n.seq OFFSET 0) AS m ORDER BY m.seq

-- name: upsert_group_rates
-- Records what groups have spent of their rate.
-- Run by: publish, settle, sweep in a queue with a group rate
-- In:  arrays: $1 q, $2 group, $3 when all spent tokens are back
-- Out: nothing
INSERT INTO tampu.pace (q, lane, spent) SELECT * FROM unnest($1::int8[], $2::bytea[], $3::int8[])
ON CONFLICT (q, lane) DO UPDATE SET spent = excluded.spent

-- name: select_token_waits
-- The messages that wait for a token of their group.
-- Run by: a queue whose group rate changes
-- In:  $1 q, $2 groups
-- Out: group, run_at, seq, when all spent tokens of its group are back
SELECT i.lane, d.run_at, d.seq, p.spent FROM unnest($2::bytea[]) AS i(lane)
CROSS JOIN LATERAL (SELECT p.spent FROM tampu.pace p WHERE p.q = $1::int8 AND p.lane = i.lane OFFSET 0) AS p
CROSS JOIN LATERAL (
  SELECT d.seq, d.run_at FROM (SELECT l.seq FROM tampu.lane l WHERE l.q = $1::int8 AND l.lane = i.lane OFFSET 0) AS l
  CROSS JOIN LATERAL (
    SELECT d.seq, d.run_at FROM tampu.delayed d WHERE d.seq = l.seq AND d.run_at <= p.spent OFFSET 0) AS d
  OFFSET 0) AS d

-- name: set_run_at
-- Changes when delayed messages run.
-- Run by: a queue whose group rate changes, sweep
-- In:  arrays: $1 seq, $2 run_at
-- Out: nothing
UPDATE tampu.delayed d SET run_at = i.run_at FROM unnest($1::int8[], $2::int8[]) AS i(seq, run_at) WHERE d.seq = i.seq

-- name: page_groups
-- The groups that have a taken slot, by name.
-- Run by: regroup
-- In:  $1 q, $2 group to continue after, $3 limit
-- Out: group
SELECT DISTINCT lane FROM tampu.lane WHERE q = $1::int8 AND lane > $2::bytea ORDER BY lane LIMIT $3::int8

-- name: select_fair_round
-- The fair round that is being delivered, and the last turn given.
-- Run by: publish, settle, sweep in a queue with fair order
-- In:  $1 q
-- Out: rank of the first ready message, the last turn given to a group; NULL where there is none
SELECT (SELECT r.rank FROM tampu.ready r WHERE r.q = $1::int8 ORDER BY r.q, r.rank, r.pos LIMIT 1),
  (SELECT f.last FROM tampu.fair f WHERE f.q = $1::int8 ORDER BY f.q DESC, f.last DESC LIMIT 1)

-- name: select_fair_turns
-- The last turns of groups. The caller holds the queue's lock.
-- Run by: publish, settle, sweep in a queue with fair order
-- In:  $1 q, $2 groups
-- Out: group, its last turn
SELECT f.lane, f.last FROM unnest($2::bytea[]) AS i(lane)
CROSS JOIN LATERAL (SELECT * FROM tampu.fair f WHERE f.q = $1::int8 AND f.lane = i.lane OFFSET 0) AS f

-- name: upsert_fair_turns
-- Records the last turns of groups.
-- Run by: publish, settle, sweep in a queue with fair order
-- In:  arrays: $1 q, $2 group, $3 its last turn
-- Out: nothing
INSERT INTO tampu.fair (q, lane, last) SELECT * FROM unnest($1::int8[], $2::bytea[], $3::int8[])
ON CONFLICT (q, lane) DO UPDATE SET last = excluded.last

-- name: delete_past_fair_turns
-- Deletes groups whose last turn is before the current round: they start again with that round.
-- Run by: publish, settle, sweep in a queue with fair order
-- In:  $1 q, $2 the round, $3 limit
-- Out: nothing
DELETE FROM tampu.fair WHERE ctid = ANY (ARRAY(
  SELECT f.ctid FROM tampu.fair f WHERE f.q = $1::int8 AND f.last < $2::int8 ORDER BY f.q, f.last LIMIT $3::int8
  FOR UPDATE SKIP LOCKED))
