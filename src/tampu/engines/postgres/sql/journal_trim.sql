-- In:  $1 recorded by this time, $2 at most so many, $3 up to this offset or NULL
-- Out: first of each record removed. From the oldest on: the first that must stay ends it.
WITH oldest AS MATERIALIZED (
  SELECT first, n, at FROM tampu.journal ORDER BY first LIMIT $2::int8),
stays AS MATERIALIZED (SELECT min(first) AS first FROM oldest WHERE at > $1::int8 OR first + n - 1 > $3::int8)
DELETE FROM tampu.journal WHERE first = ANY (ARRAY(
  SELECT o.first FROM oldest o, stays s WHERE s.first IS NULL OR o.first < s.first))
RETURNING first
