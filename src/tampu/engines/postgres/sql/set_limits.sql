-- In:  $1 q, $2 how many messages of a group may go at once, $3 a token every so many microseconds or NULL, $4 how many
--      are saved up
UPDATE tampu.queue SET places = $2::int8, pace = $3::int8, pace_burst = $4::int8
WHERE q = $1::int8 AND (coalesce(places, 0), pace, pace_burst) IS DISTINCT FROM ($2::int8, $3::int8, $4::int8)
