-- In:  $1 tenant, columns: $2 idempotency key, $3 seq, $4 stamp, $5 until, $6 id, $7 digest
INSERT INTO tampu_idempotency (tenant, word, seq, stamp, until, id, digest) VALUES {($1, $2, $3, $4, $5, $6, $7)}
ON DUPLICATE KEY UPDATE seq = VALUES(seq), stamp = VALUES(stamp), until = VALUES(until), id = VALUES(id),
  digest = VALUES(digest)
