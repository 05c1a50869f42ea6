-- In:  $1 tenant, $2 key to go on after, $3 the time or NULL (the server's clock), $4 at most so many
-- Out: key, digest, until, seq, stamp, id, queue or NULL when the message is gone, whether its window is open
SELECT d.key, d.digest, d.until, d.seq, d.stamp, d.id, u.name,
  d.until > coalesce($3::int8, (extract(epoch FROM statement_timestamp()) * 1000000)::int8)
FROM (SELECT * FROM tampu.idempotency d WHERE d.tenant = $1::text AND d.key > $2::bytea
  ORDER BY d.tenant, d.key LIMIT $4::int8) AS d
LEFT JOIN LATERAL (SELECT m.q FROM tampu.message m WHERE m.seq = d.seq OFFSET 0) AS m ON true
LEFT JOIN LATERAL (SELECT u.name FROM tampu.queue u WHERE u.q = m.q OFFSET 0) AS u ON true ORDER BY d.key
