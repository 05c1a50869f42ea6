-- In:  $1 channel, $2 who rings
SELECT pg_notify($1::text, $2::text)
