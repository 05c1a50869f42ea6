-- Statements of the journal: giving offsets to its records, and reading them.

-- name: has_unnumbered
-- Whether there are records without offsets.
-- Run by: reading the journal
-- In:  nothing
-- Out: true if there are
SELECT EXISTS (SELECT FROM tampu.journal_new)

-- name: lock_journal
-- Locks the journal: one reader at a time gives offsets. The next statement sees what earlier readers have done.
-- Run by: numbering the journal
-- In:  nothing
-- Out: the last offset given
SELECT n FROM tampu.journal_end FOR UPDATE

-- name: number_journal
-- Gives offsets to records that are visible, in the order of their entries.
-- Run by: numbering the journal
-- In:  $1 limit of records, $2 the offset given out last
-- Out: how many records
WITH new AS (
  DELETE FROM tampu.journal_new WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM tampu.journal_new ORDER BY no, part LIMIT $1::int8))
  RETURNING *),
moved AS (
  INSERT INTO tampu.journal (first, no, at, n, q, body)
  SELECT $2::int8 + 1 + sum(n) OVER (ORDER BY no, part) - n, no, at, n, q, body FROM new),
reached AS (UPDATE tampu.journal_end SET n = n + (SELECT coalesce(sum(n), 0) FROM new))
SELECT count(*) FROM new

-- name: select_journal_end
-- The end of the journal.
-- Run by: reading the journal
-- In:  nothing
-- Out: the last offset given
SELECT n FROM tampu.journal_end

-- name: read_journal
-- Records after an offset. The record that holds the next offset may begin before it.
-- Run by: reading the journal
-- In:  $1 the offset to continue after, $2 limit of records
-- Out: first, n, at, q, body
SELECT first, n, at, q, body FROM tampu.journal
WHERE first >= coalesce((
  SELECT first FROM tampu.journal WHERE first <= $1::int8 + 1 ORDER BY first DESC LIMIT 1), 0)
ORDER BY first LIMIT $2::int8

-- name: read_journal_range
-- Records of a range of offsets. The record that holds the next offset may begin before it.
-- Run by: reading the journal by Spark
-- In:  $1 the offset to continue after, $2 the last offset wanted, $3 limit of records
-- Out: first, n, at, q, body
SELECT first, n, at, q, body FROM tampu.journal
WHERE first BETWEEN coalesce((
  SELECT first FROM tampu.journal WHERE first <= $1::int8 + 1 ORDER BY first DESC LIMIT 1), 0) AND $2::int8
ORDER BY first LIMIT $3::int8

-- name: select_journal_bounds
-- The bounds of the journal.
-- Run by: reading the journal by Spark
-- In:  nothing
-- Out: the first offset that is still there or NULL, the last offset given
SELECT (SELECT first FROM tampu.journal ORDER BY first LIMIT 1), n FROM tampu.journal_end

-- name: find_journal_since
-- The first record that is not older than a time.
-- Run by: reading the journal by Spark
-- In:  $1 a time
-- Out: its first offset
SELECT first FROM tampu.journal WHERE at >= $1::int8 ORDER BY first LIMIT 1

-- name: find_journal_until
-- The last record that is older than a time.
-- Run by: reading the journal by Spark
-- In:  $1 a time
-- Out: its last offset
SELECT first + n - 1 FROM tampu.journal WHERE at < $1::int8 ORDER BY first DESC LIMIT 1

-- name: select_oldest_journal
-- The oldest records.
-- Run by: trim
-- In:  $1 limit
-- Out: first, n, at
SELECT first, n, at FROM tampu.journal ORDER BY first LIMIT $1::int8

-- name: select_later_record
-- When the next record was written that is not from the future.
-- Run by: trim
-- In:  $1 first, $2 now
-- Out: at
SELECT at FROM (SELECT at FROM tampu.journal WHERE first > $1::int8 ORDER BY first LIMIT 10000) AS later
WHERE at <= $2::int8 LIMIT 1

-- name: delete_journal
-- Removes records.
-- Run by: trim
-- In:  $1 first of each record
-- Out: nothing
DELETE FROM tampu.journal WHERE first = ANY ($1::int8[])

-- name: start_journal
-- Lets an empty journal start after an offset. The caller holds its lock.
-- Run by: import into an empty store
-- In:  $1 the offset
-- Out: a row if it was empty
UPDATE tampu.journal_end SET n = $1::int8 WHERE n = 0 AND NOT EXISTS (SELECT 1 FROM tampu.journal_new) RETURNING n
