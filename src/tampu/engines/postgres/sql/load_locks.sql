-- Loads that a note of their own keeps apart: several under one stem at once. Who loads without one (see locks) waits for
-- them, and they for it.
-- In:  $1 names
SELECT pg_advisory_xact_lock_shared(h)
FROM (SELECT DISTINCT hashtextextended(encode(name, 'hex'), 7461) AS h FROM unnest($1::bytea[]) AS name ORDER BY 1) AS s
