-- adopt: idempotency keys; one that is in use here stays as it is.
-- In:  $1 tenant, $2 the time, arrays: $3 idempotency key, $4 seq, $5 stamp, $6 until, $7 id, $8 digest
INSERT INTO tampu.idempotency AS d (tenant, key, seq, stamp, until, id, digest)
SELECT $1::text, key, seq, stamp, until, id, digest
FROM unnest($3::bytea[], $4::int8[], $5::int8[], $6::int8[], $7::uuid[], $8::bytea[])
  AS i(key, seq, stamp, until, id, digest)
ON CONFLICT (tenant, key) DO UPDATE
SET seq = excluded.seq, stamp = excluded.stamp, until = excluded.until, id = excluded.id, digest = excluded.digest
WHERE d.until <= $2::int8
