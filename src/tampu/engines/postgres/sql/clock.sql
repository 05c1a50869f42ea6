-- Out: the server's time
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8
