-- The first statement of a call inside a transaction of the user's, whose settings are left alone.
-- In:  $1 the time or NULL (the server's clock)
-- Out: the time
SELECT coalesce($1::int8, (extract(epoch FROM clock_timestamp()) * 1000000)::int8)
