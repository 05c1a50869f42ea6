-- What a batch is about to look at, locked until its end, in one order for all. A statement's snapshot is older than
-- the locks it waits for: so this comes first, and looking is another statement.
-- In:  $1 names
SELECT pg_advisory_xact_lock(h)
FROM (SELECT DISTINCT hashtextextended(encode(name, 'hex'), 7461) AS h FROM unnest($1::bytea[]) AS name ORDER BY 1) AS s
