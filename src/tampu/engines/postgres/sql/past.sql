-- sweep: what may have expired.
-- In:  $1 the time, $2 at most so many
-- Out: seq
SELECT seq FROM tampu.expiry WHERE at <= $1::int8 ORDER BY at, seq LIMIT $2::int8
