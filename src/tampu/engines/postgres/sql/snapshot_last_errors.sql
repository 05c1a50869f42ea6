-- In:  $1 first and $2 last seq
-- Out: seq, the error of its latest failed attempt, of those between them that have one
SELECT DISTINCT ON (seq) seq, error FROM tampu.failure WHERE seq BETWEEN $1::int8 AND $2::int8 ORDER BY seq, no DESC
