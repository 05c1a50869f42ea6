-- Statements of groups: slots, rates, the next messages, and fair turns. The callers hold the groups' locks.
-- `message row` stands for the columns of a MessageRow: seq, q, attempts, stamp, id, group, rank, max_attempts, expires,
-- whether it has a key.

-- name: set_group_limits
-- Sets how many messages of a group may be leased at once, and the rate of each group.
-- Run by: publish, regroup
-- In:  $1 q, $2 slots of a group, $3 microseconds for a token or NULL, $4 how many tokens are saved up
-- Out: nothing
UPDATE tampu_queue SET places = $2, pace = $3, pace_burst = $4
WHERE q = $1 AND NOT (COALESCE(places, 0) = $2 AND pace <=> $3 AND pace_burst <=> $4)

-- name: select_group_limits
-- The limits of a queue's groups.
-- Run by: select_slots
-- In:  $1 q
-- Out: slots, microseconds for a token, burst
SELECT places, pace, pace_burst FROM tampu_queue FORCE INDEX (PRIMARY) WHERE q = $1

-- name: select_slots
-- The messages that have a slot of their group.
-- Run by: publish, settle, sweep, regroup
-- In:  $1 q, $2 groups
-- Out: group, seq that has a slot
SELECT lane, seq FROM tampu_lane FORCE INDEX (PRIMARY) WHERE q = $1 AND lane IN ($2)

-- name: select_group_rates
-- What groups have spent of their rate.
-- Run by: publish, settle, sweep in a queue with a group rate
-- In:  $1 q, $2 groups
-- Out: group, when all spent tokens are back
SELECT lane, spent FROM tampu_pace FORCE INDEX (PRIMARY) WHERE q = $1 AND lane IN ($2)

-- name: select_leased_slots
-- The messages that have a slot of their group and are leased.
-- Run by: select_group_rates
-- In:  $1 q, $2 groups
-- Out: group, seq
SELECT l.lane, l.seq FROM tampu_lane l FORCE INDEX (PRIMARY)
STRAIGHT_JOIN tampu_leased c FORCE INDEX (PRIMARY) ON c.seq = l.seq WHERE l.q = $1 AND l.lane IN ($2)

-- name: insert_slots
-- Adds slots.
-- Run by: publish, settle, sweep, regroup
-- In:  columns: $1 q, $2 group, $3 seq
-- Out: nothing
INSERT INTO tampu_lane (q, lane, seq) VALUES {($1, $2, $3)}

-- name: delete_slots
-- Removes slots.
-- Run by: release_slots, delete_slots
-- In:  $1 q, columns: $2 group, $3 seq
-- Out: nothing
DELETE FROM tampu_lane WHERE {(q = $1 AND lane = $2 AND seq = $3) OR} LIMIT #3

-- name: next_in_group
-- The next messages of a group, in publish order.
-- Run by: settle, sweep in groups with a rate
-- In:  $1 q, $2 group, $3 limit
-- Out: seq
SELECT seq FROM tampu_held FORCE INDEX (of_lane) WHERE q = $1 AND lane = $2 ORDER BY seq LIMIT $3

-- name: upsert_group_rates
-- Records what groups have spent of their rate.
-- Run by: publish, settle, sweep in a queue with a group rate
-- In:  columns: $1 q, $2 group, $3 when all spent tokens are back
-- Out: nothing
INSERT INTO tampu_pace (q, lane, spent) VALUES {($1, $2, $3)} ON DUPLICATE KEY UPDATE spent = VALUES(spent)

-- name: select_token_waits
-- The messages that wait for a token of their group.
-- Run by: a queue whose group rate changes
-- In:  $1 q, $2 groups
-- Out: group, run_at, seq, when all spent tokens of its group are back
SELECT l.lane, d.run_at, d.seq, p.spent FROM tampu_pace p FORCE INDEX (PRIMARY)
STRAIGHT_JOIN tampu_lane l FORCE INDEX (PRIMARY) ON l.q = p.q AND l.lane = p.lane
STRAIGHT_JOIN tampu_delayed d FORCE INDEX (PRIMARY) ON d.seq = l.seq AND d.run_at <= p.spent
WHERE p.q = $1 AND p.lane IN ($2)

-- name: set_run_at
-- Changes when delayed messages run.
-- Run by: a queue whose group rate changes, sweep
-- In:  $1 run_at, $2 seqs
-- Out: nothing
UPDATE tampu_delayed FORCE INDEX (PRIMARY) SET run_at = $1 WHERE seq IN ($2)

-- name: page_groups
-- The groups that have a taken slot, by name.
-- Run by: regroup
-- In:  $1 q, $2 group to continue after, $3 limit
-- Out: group
SELECT DISTINCT lane FROM tampu_lane FORCE INDEX (PRIMARY) WHERE q = $1 AND lane > $2 ORDER BY lane LIMIT $3

-- name: select_fair_round
-- The fair round that is being delivered, and the last turn given.
-- Run by: publish, settle, sweep in a queue with fair order
-- In:  $1 q
-- Out: rank of the first ready message, the last turn given to a group; NULL where there is none
SELECT (SELECT place FROM tampu_ready FORCE INDEX (PRIMARY) WHERE q = $1 ORDER BY q, place, pos LIMIT 1),
  (SELECT last FROM tampu_fair FORCE INDEX (of_queue) WHERE q = $1 ORDER BY last DESC LIMIT 1)

-- name: select_fair_turns
-- The last turns of groups. The caller holds the queue's lock.
-- Run by: publish, settle, sweep in a queue with fair order
-- In:  $1 q, $2 groups
-- Out: group, its last turn
SELECT lane, last FROM tampu_fair FORCE INDEX (PRIMARY) WHERE q = $1 AND lane IN ($2)

-- name: upsert_fair_turns
-- Records the last turns of groups.
-- Run by: publish, settle, sweep in a queue with fair order
-- In:  columns: $1 q, $2 group, $3 its last turn
-- Out: nothing
INSERT INTO tampu_fair (q, lane, last) VALUES {($1, $2, $3)} ON DUPLICATE KEY UPDATE last = VALUES(last)

-- name: select_past_fair_turns
-- The groups whose last turn is before the current round. The caller holds the queue's lock.
-- Run by: delete_past_fair_turns
-- In:  $1 q, $2 the round, $3 limit
-- Out: group
SELECT lane FROM tampu_fair FORCE INDEX (of_queue) WHERE q = $1 AND last < $2 ORDER BY last LIMIT $3

-- name: delete_past_fair_turns
-- Deletes groups: they start again with the current round.
-- Run by: publish, settle, sweep in a queue with fair order
-- In:  $1 q, $2 groups
-- Out: nothing
DELETE FROM tampu_fair WHERE q = $1 AND lane IN ($2) LIMIT #2
