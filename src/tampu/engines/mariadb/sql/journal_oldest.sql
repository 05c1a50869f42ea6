-- In:  $1 at most so many
-- Out: first, n, at of the oldest records
SELECT first, n, at FROM tampu_journal FORCE INDEX (PRIMARY) ORDER BY first LIMIT $1
