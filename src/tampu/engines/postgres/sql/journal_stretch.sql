-- In:  $1 the offset to go on after, $2 the last one wanted, $3 at most so many records
-- Out: first, n, at, q, body; the record that holds the next offset may have begun before it
SELECT first, n, at, q, body FROM tampu.journal
WHERE first BETWEEN coalesce((
  SELECT first FROM tampu.journal WHERE first <= $1::int8 + 1 ORDER BY first DESC LIMIT 1), 0) AND $2::int8
ORDER BY first LIMIT $3::int8
