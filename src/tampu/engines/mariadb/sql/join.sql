-- The first statement of a call inside a transaction of the user's.
-- In:  $1 the time or NULL (the server's)
-- Out: the time
SELECT COALESCE($1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
