-- In:  $1 tenant, arrays: $2 idempotency key, $3 seq, $4 stamp, $5 until, $6 id, $7 digest
INSERT INTO tampu.idempotency (tenant, key, seq, stamp, until, id, digest)
SELECT $1::text, key, seq, stamp, until, id, digest
FROM unnest($2::bytea[], $3::int8[], $4::int8[], $5::int8[], $6::uuid[], $7::bytea[])
  AS i(key, seq, stamp, until, id, digest)
ON CONFLICT (tenant, key) DO UPDATE
SET seq = excluded.seq, stamp = excluded.stamp, until = excluded.until, id = excluded.id, digest = excluded.digest
