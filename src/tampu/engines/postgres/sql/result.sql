-- In:  $1 seq, $2 the time or NULL (the server's clock)
-- Out: the result, while it is kept
SELECT body FROM tampu.result WHERE seq = $1::int8 AND until > coalesce($2::int8, (extract(epoch FROM statement_timestamp()) * 1000000)::int8)
