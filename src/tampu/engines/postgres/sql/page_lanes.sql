-- In:  $1 q, $2 group to go on after, $3 at most so many
-- Out: groups of which a message has a place, in the order of their names
SELECT DISTINCT lane FROM tampu.lane WHERE q = $1::int8 AND lane > $2::bytea ORDER BY lane LIMIT $3::int8
