-- In:  arrays: $1 q, $2 lane, $3 when all that was spent is saved up again. The caller has the lanes' locks.
INSERT INTO tampu.pace (q, lane, spent) SELECT * FROM unnest($1::int8[], $2::bytea[], $3::int8[])
ON CONFLICT (q, lane) DO UPDATE SET spent = excluded.spent
