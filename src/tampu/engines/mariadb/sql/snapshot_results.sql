-- In:  $1 first and $2 last seq, $3 the time
-- Out: seq, the result, of those between them whose result is kept
SELECT seq, body FROM tampu_result FORCE INDEX (PRIMARY) WHERE seq BETWEEN $1 AND $2 AND until > $3
