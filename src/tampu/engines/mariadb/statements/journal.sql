-- Statements of the journal: giving offsets to its records, and reading them.

-- name: has_unnumbered
-- Whether there are records without offsets.
-- Run by: reading the journal
-- In:  nothing
-- Out: true if there are
SELECT EXISTS (SELECT 1 FROM tampu_journal_new)

-- name: lock_journal
-- Locks the journal: one reader at a time gives offsets. The next statement sees what earlier readers have done.
-- Run by: numbering the journal
-- In:  nothing
-- Out: the last offset given
SELECT n FROM tampu_journal_end WHERE one = 1 FOR UPDATE

-- name: number_journal
-- Gives offsets to records that are visible, in the order of their entries. The caller holds the journal's lock.
-- Run by: numbering the journal
-- In:  $1 limit of records, $2 the offset given out last
-- Out: nothing
INSERT INTO tampu_journal (first, no, part, at, n, q, body)
SELECT $2 + 1 + s.before_it, w.no, w.part, w.at, w.n, w.q, w.body FROM (
  SELECT no, part, SUM(n) OVER (ORDER BY no, part ROWS UNBOUNDED PRECEDING) - n AS before_it FROM (
    SELECT no, part, n FROM tampu_journal_new FORCE INDEX (PRIMARY) ORDER BY no, part LIMIT $1) AS head) AS s
STRAIGHT_JOIN tampu_journal_new w FORCE INDEX (PRIMARY) ON w.no = s.no AND w.part = s.part

-- name: end_numbering
-- Removes the records that were numbered from the new ones, and moves the last offset.
-- Removes exactly what was moved: an older record may have become visible meanwhile.
-- Run by: numbering the journal
-- In:  $1 the offset given out last before
-- Out: how many records were numbered
DELETE w FROM tampu_journal j FORCE INDEX (PRIMARY)
STRAIGHT_JOIN tampu_journal_new w FORCE INDEX (PRIMARY) ON w.no = j.no AND w.part = j.part WHERE j.first > $1;
UPDATE tampu_journal_end SET n = $1 + (SELECT COALESCE(SUM(n), 0) FROM tampu_journal WHERE first > $1) WHERE one = 1;
SELECT COUNT(*) FROM tampu_journal WHERE first > $1

-- name: seal_journal
-- Makes the journal durable as far as it was read. InnoDB shows a commit before its log is flushed. Our own commit comes
-- after it in the log, so once that has returned, all that we have read is on disk.
-- Run by: reading the journal
-- In:  nothing
-- Out: nothing
UPDATE tampu_journal_end SET seen = seen + 1 WHERE one = 1

-- name: select_journal_end
-- The end of the journal.
-- Run by: reading the journal
-- In:  nothing
-- Out: the last offset given
SELECT n FROM tampu_journal_end WHERE one = 1

-- name: read_journal
-- Records after an offset. The record that holds the next offset may begin before it.
-- Run by: reading the journal
-- In:  $1 the offset to continue after, $2 limit of records
-- Out: first, n, at, q, body
SELECT first, n, at, q, body FROM tampu_journal FORCE INDEX (PRIMARY)
WHERE first >= COALESCE((SELECT MAX(first) FROM tampu_journal WHERE first <= $1 + 1), 0) ORDER BY first LIMIT $2

-- name: read_journal_range
-- Records of a range of offsets. The record that holds the next offset may begin before it.
-- Run by: reading the journal by Spark
-- In:  $1 the offset to continue after, $2 the last offset wanted, $3 limit of records
-- Out: first, n, at, q, body
SELECT first, n, at, q, body FROM tampu_journal FORCE INDEX (PRIMARY)
WHERE first BETWEEN COALESCE((SELECT MAX(first) FROM tampu_journal WHERE first <= $1 + 1), 0) AND $2
ORDER BY first LIMIT $3

-- name: select_journal_bounds
-- The bounds of the journal.
-- Run by: reading the journal by Spark
-- In:  nothing
-- Out: the first offset that is still there or NULL, the last offset given
SELECT (SELECT MIN(first) FROM tampu_journal), n FROM tampu_journal_end WHERE one = 1

-- name: find_journal_since
-- The first record that is not older than a time.
-- Run by: reading the journal by Spark
-- In:  $1 a time
-- Out: its first offset
SELECT first FROM tampu_journal FORCE INDEX (PRIMARY) WHERE at >= $1 ORDER BY first LIMIT 1

-- name: find_journal_until
-- The last record that is older than a time.
-- Run by: reading the journal by Spark
-- In:  $1 a time
-- Out: its last offset
SELECT first + n - 1 FROM tampu_journal FORCE INDEX (PRIMARY) WHERE at < $1 ORDER BY first DESC LIMIT 1

-- name: select_oldest_journal
-- The oldest records.
-- Run by: trim
-- In:  $1 limit
-- Out: first, n, at
SELECT first, n, at FROM tampu_journal FORCE INDEX (PRIMARY) ORDER BY first LIMIT $1

-- name: select_later_record
-- When the next record was written that is not from the future.
-- Run by: trim
-- In:  $1 first, $2 now
-- Out: at
SELECT at FROM (
  SELECT at FROM tampu_journal FORCE INDEX (PRIMARY) WHERE first > $1 ORDER BY first LIMIT 10000) AS later
WHERE at <= $2 LIMIT 1

-- name: delete_journal
-- Removes records.
-- Run by: trim
-- In:  $1 first of each record
-- Out: nothing
DELETE FROM tampu_journal WHERE first IN ($1) LIMIT #1

-- name: is_journal_empty
-- Whether the journal never had a record. The caller holds its lock.
-- Run by: start_journal
-- In:  nothing
-- Out: whether it is empty
SELECT n = 0 AND NOT EXISTS (SELECT 1 FROM tampu_journal_new) FROM tampu_journal_end WHERE one = 1

-- name: start_journal
-- Lets the journal start after an offset. The caller holds its lock.
-- Run by: import into an empty store
-- In:  $1 the offset
-- Out: nothing
UPDATE tampu_journal_end SET n = $1 WHERE one = 1
