-- In:  $1 q, $2 how many messages of a group may go at once, $3 a token every so many microseconds or NULL, $4 how many
--      are saved up
UPDATE tampu_queue SET places = $2, pace = $3, pace_burst = $4
WHERE q = $1 AND NOT (COALESCE(places, 0) = $2 AND pace <=> $3 AND pace_burst <=> $4)
