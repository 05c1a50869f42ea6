-- Out: the name by which another session can see what this transaction sees, while it is open
SELECT pg_export_snapshot()
