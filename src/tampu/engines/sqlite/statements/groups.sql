-- Statements of groups: slots, rates, the next messages, and fair turns.
-- `message row` stands for the columns of a MessageRow: seq, q, attempts, stamp, id, group, rank, max_attempts, expires,
-- whether it has a key.

-- name: set_group_limits
-- Sets how many messages of a group may be leased at once, and the rate of each group.
-- Run by: publish, regroup
-- In:  $1 q, $2 slots of a group, $3 microseconds for a token or NULL, $4 how many tokens are saved up
-- Out: nothing
UPDATE tampu_queue SET places = $2, pace = $3, pace_burst = $4
WHERE q = $1 AND NOT (coalesce(places, 0) = $2 AND pace IS $3 AND pace_burst IS $4)

-- name: select_group_limits
-- The limits of a queue's groups.
-- Run by: release_slots
-- In:  $1 q
-- Out: slots, microseconds for a token
SELECT places, pace FROM tampu_queue WHERE q = $1

-- name: select_slots
-- The messages that have a slot of their group.
-- Run by: publish, settle, sweep, regroup
-- In:  rows: $1 q, $2 group
-- Out: q, group, slots, rate and burst of its queue, seq that has a slot; or one row without seq
SELECT u.q, $2, u.places, u.pace, u.pace_burst, l.seq FROM tampu_queue u
LEFT JOIN tampu_lane l ON l.q = u.q AND l.lane = CAST($2 AS TEXT) WHERE u.q = $1

-- name: select_group_rates
-- What groups have spent of their rate, and which of their messages are leased.
-- Run by: publish, settle, sweep in a queue with a group rate
-- In:  rows: $1 q, $2 group
-- Out: q, group, when all spent tokens are back (NULL: they are), NULL or a seq that has a slot and is leased
SELECT $1, $2, (SELECT spent FROM tampu_pace WHERE q = $1 AND lane = CAST($2 AS TEXT)), NULL
UNION ALL
SELECT $1, $2, (SELECT spent FROM tampu_pace WHERE q = $1 AND lane = CAST($2 AS TEXT)), c.seq
FROM tampu_lane l CROSS JOIN tampu_leased c ON c.seq = l.seq WHERE l.q = $1 AND l.lane = CAST($2 AS TEXT)

-- name: count_slots
-- Counts the taken slots of a group.
-- Run by: release_slots
-- In:  $1 q, $2 group
-- Out: how many
SELECT count(*) FROM tampu_lane WHERE q = $1 AND lane = CAST($2 AS TEXT)

-- name: insert_slots
-- Adds slots.
-- Run by: publish, settle, sweep, regroup
-- In:  rows: $1 q, $2 group, $3 seq
-- Out: nothing
INSERT INTO tampu_lane (q, lane, seq) VALUES ($1, CAST($2 AS TEXT), $3)

-- name: delete_slots
-- Removes slots. The next messages stay held.
-- Run by: groups with a rate, release_slots
-- In:  rows: $1 q, $2 group, $3 seq
-- Out: q, group of the slots that were there
DELETE FROM tampu_lane WHERE q = $1 AND lane = CAST($2 AS TEXT) AND seq = $3 RETURNING q, CAST(lane AS BLOB)

-- name: is_group_waiting
-- Whether messages of a group are held for a slot.
-- Run by: release_slots
-- In:  $1 q, $2 group
-- Out: a row if there are
SELECT 1 FROM tampu_held WHERE q = $1 AND lane = CAST($2 AS TEXT) LIMIT 1

-- name: next_in_group
-- Removes the next messages of groups from held.
-- Run by: settle, sweep in groups with a rate; release_slots
-- In:  rows: $1 q, $2 group, $3 limit
-- Out: message row, run_at
SELECT m.seq, m.q, h.attempts, m.seq >> 20, m.id, CAST(m.lane AS BLOB), m.rank, m.max_attempts, m.expires,
  m.key IS NOT NULL,
  h.run_at
FROM tampu_held h CROSS JOIN tampu_message m ON m.seq = h.seq
WHERE h.q = $1 AND h.lane = CAST($2 AS TEXT) ORDER BY h.seq LIMIT $3;
DELETE FROM tampu_held WHERE seq IN (
  SELECT seq FROM tampu_held WHERE q = $1 AND lane = CAST($2 AS TEXT) ORDER BY seq LIMIT $3)

-- name: upsert_group_rates
-- Records what groups have spent of their rate.
-- Run by: publish, settle, sweep in a queue with a group rate
-- In:  rows: $1 q, $2 group, $3 when all spent tokens are back
-- Out: nothing
INSERT OR REPLACE INTO tampu_pace (q, lane, spent) VALUES ($1, CAST($2 AS TEXT), $3)

-- name: select_token_waits
-- The messages that wait for a token of their group.
-- Run by: a queue whose group rate changes
-- In:  $1 q, rows: $2 group
-- Out: group, run_at, seq, when all spent tokens of its group are back
SELECT CAST(l.lane AS BLOB), d.run_at, d.seq, p.spent FROM tampu_pace p
CROSS JOIN tampu_lane l ON l.q = p.q AND l.lane = p.lane
CROSS JOIN tampu_delayed d ON d.seq = l.seq AND d.run_at <= p.spent
WHERE p.q = $1 AND p.lane = CAST($2 AS TEXT)

-- name: set_run_at
-- Changes when delayed messages run.
-- Run by: a queue whose group rate changes
-- In:  rows: $1 seq, $2 run_at
-- Out: nothing
UPDATE tampu_delayed SET run_at = $2 WHERE seq = $1

-- name: page_groups
-- The groups that have a taken slot, by name.
-- Run by: regroup
-- In:  $1 q, $2 group to continue after, $3 limit
-- Out: group
SELECT CAST(lane AS BLOB) FROM (
  SELECT DISTINCT lane FROM tampu_lane WHERE q = $1 AND lane > CAST($2 AS TEXT) ORDER BY lane LIMIT $3)

-- name: select_fair_round
-- The fair round that is being delivered, and the last turn given.
-- Run by: publish, settle, sweep in a queue with fair order
-- In:  $1 q
-- Out: rank of the first ready message, the last turn given to a group; NULL where there is none
SELECT (SELECT min(rank) FROM tampu_ready WHERE q = $1), (SELECT max(last) FROM tampu_fair WHERE q = $1)

-- name: select_fair_turns
-- The last turns of groups.
-- Run by: publish, settle, sweep in a queue with fair order
-- In:  $1 q, rows: $2 group
-- Out: group, its last turn
SELECT CAST(lane AS BLOB), last FROM tampu_fair WHERE q = $1 AND lane = CAST($2 AS TEXT)

-- name: upsert_fair_turns
-- Records the last turns of groups.
-- Run by: publish, settle, sweep in a queue with fair order
-- In:  rows: $1 q, $2 group, $3 its last turn
-- Out: nothing
INSERT INTO tampu_fair (q, lane, last) VALUES ($1, CAST($2 AS TEXT), $3)
ON CONFLICT (q, lane) DO UPDATE SET last = excluded.last

-- name: delete_past_fair_turns
-- Deletes groups whose last turn is before the current round: they start again with that round.
-- Run by: publish, settle, sweep in a queue with fair order
-- In:  $1 q, $2 the round, $3 limit
-- Out: nothing
DELETE FROM tampu_fair WHERE q = $1 AND lane IN (
  SELECT lane FROM tampu_fair WHERE q = $1 AND last < $2 ORDER BY last LIMIT $3)
