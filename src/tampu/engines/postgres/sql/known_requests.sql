-- In:  $1 tenant, $2 idempotency keys, $3 the time
-- Out: key, seq, stamp, id, digest of those whose window is open
SELECT d.key, d.seq, d.stamp, d.id, d.digest FROM unnest($2::bytea[]) AS i(key) CROSS JOIN LATERAL (
  SELECT * FROM tampu.idempotency d WHERE d.tenant = $1::text AND d.key = i.key OFFSET 0) AS d
WHERE d.until > $3::int8
