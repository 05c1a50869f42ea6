-- In:  $1 the offset to go on after, $2 the last one wanted, $3 at most so many records
-- Out: first, n, at, q, body; the record that holds the next offset may have begun before it
SELECT first, n, at, q, body FROM tampu_journal FORCE INDEX (PRIMARY)
WHERE first BETWEEN COALESCE((SELECT MAX(first) FROM tampu_journal WHERE first <= $1 + 1), 0) AND $2
ORDER BY first LIMIT $3
