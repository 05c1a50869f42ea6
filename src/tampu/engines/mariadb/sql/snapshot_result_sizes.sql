-- In:  $1 first and $2 last seq, $3 the time
-- Out: seq, bytes of its result, of those between them whose result is kept
SELECT seq, LENGTH(body) FROM tampu_result FORCE INDEX (PRIMARY) WHERE seq BETWEEN $1 AND $2 AND until > $3
