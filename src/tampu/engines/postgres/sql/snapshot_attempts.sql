-- In:  $1 first and $2 last seq
-- Out: seq, attempts of those between them that ended after more or fewer attempts than one
SELECT seq, attempts FROM tampu.ended WHERE seq BETWEEN $1::int8 AND $2::int8 AND attempts <> 1
