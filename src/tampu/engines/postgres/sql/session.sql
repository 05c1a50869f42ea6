-- Out: the number of the server's session
SELECT pg_backend_pid()
