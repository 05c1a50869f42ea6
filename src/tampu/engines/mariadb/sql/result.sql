-- In:  $1 seq, $2 the time or NULL (the server's)
-- Out: the result, while it is kept
SELECT body FROM tampu_result WHERE seq = $1
  AND until > COALESCE($2, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
