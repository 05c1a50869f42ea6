-- In:  $1 first and $2 last seq, $3 at most so many
-- Out: how many messages there are between them
SELECT count(*) FROM (SELECT FROM tampu.message WHERE seq BETWEEN $1::int8 AND $2::int8 LIMIT $3::int8) AS m
