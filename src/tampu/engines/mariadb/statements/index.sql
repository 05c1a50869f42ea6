-- Statements for the index in Redis: whether there is one, and which messages it may lack.

-- name: enable_index
-- Records that there is an index in Redis, for all processes that open the tables.
-- Run by: open of a store with an index
-- In:  nothing
-- Out: nothing
INSERT IGNORE INTO tampu_meta VALUES ('index', 'redis')

-- name: is_index_enabled
-- Whether any process uses an index in Redis.
-- Run by: open of a store
-- In:  nothing
-- Out: true if there is one
SELECT EXISTS (SELECT 1 FROM tampu_meta WHERE name = 'index')

-- name: is_index_stale
-- Whether the index in Redis may be incomplete.
-- Run by: every commit, with an index
-- In:  nothing
-- Out: true if it may
SELECT EXISTS (SELECT 1 FROM tampu_stale)

-- name: mark_index_stale
-- Records that the index in Redis lacks some messages. Bounded, in case no process uses an index any more.
-- Run by: commits that cannot update the index
-- In:  nothing
-- Out: nothing
INSERT INTO tampu_stale (q, place, pos)
SELECT 0, 0, 0 FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM tampu_stale LIMIT 10000, 1)

-- name: insert_stale
-- Records messages that became ready in a user's transaction: we cannot update the index when it commits.
-- Run by: a user's transaction
-- In:  columns: $1 q, $2 rank, $3 pos
-- Out: nothing
INSERT INTO tampu_stale (q, place, pos) VALUES {($1, $2, $3)}

-- name: select_stale
-- Messages that the index in Redis may lack.
-- Run by: index repair
-- In:  $1 limit
-- Out: no, q, rank, pos; a row with q 0 means any message
SELECT no, q, place, pos FROM tampu_stale FORCE INDEX (PRIMARY) ORDER BY no LIMIT $1

-- name: delete_stale
-- Removes records of messages that the index in Redis has now.
-- Run by: index repair
-- In:  $1 nos
-- Out: nothing
DELETE FROM tampu_stale WHERE no IN ($1) LIMIT #1

-- name: page_all_ready
-- Ready messages of all queues, in the order of the primary key.
-- Run by: index repair
-- In:  $1 q, $2 rank, $3 pos to continue after, $4 limit
-- Out: q, rank, pos
SELECT q, place, pos FROM tampu_ready FORCE INDEX (PRIMARY)
WHERE q > $1 OR (q = $1 AND (place > $2 OR (place = $2 AND pos > $3))) ORDER BY q, place, pos LIMIT $4
