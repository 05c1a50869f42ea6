-- As `locks`, of what nobody else has locked; the others are not waited for.
-- In:  $1 names
-- Out: those that are ours until the end of the transaction
SELECT name FROM unnest($1::bytea[]) AS name WHERE pg_try_advisory_xact_lock(hashtextextended(encode(name, 'hex'), 7461))
