-- In:  $1 first and $2 last seq, $3 the time
-- Out: seq, bytes of its result, of those between them whose result is kept
SELECT seq, octet_length(body) FROM tampu.result WHERE seq BETWEEN $1::int8 AND $2::int8 AND until > $3::int8
