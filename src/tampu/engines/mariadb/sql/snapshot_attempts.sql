-- In:  $1 first and $2 last seq
-- Out: seq, attempts of those between them that ended after more or fewer attempts than one
SELECT seq, attempts FROM tampu_ended FORCE INDEX (PRIMARY) WHERE seq BETWEEN $1 AND $2 AND attempts <> 1
