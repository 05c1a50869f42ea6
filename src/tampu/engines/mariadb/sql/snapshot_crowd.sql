-- In:  $1 first and $2 last seq, $3 at most so many
-- Out: how many messages there are between them
SELECT COUNT(*) FROM (
  SELECT seq FROM tampu_message FORCE INDEX (PRIMARY) WHERE seq BETWEEN $1 AND $2 LIMIT $3) AS m
