-- adopt: idempotency keys; one that is in use here stays as it is. The end of its window is changed last: the others ask it.
-- In:  $1 tenant, $2 the time, columns: $3 idempotency key, $4 seq, $5 stamp, $6 until, $7 id, $8 digest
INSERT INTO tampu_idempotency (tenant, word, seq, stamp, until, id, digest) VALUES {($1, $3, $4, $5, $6, $7, $8)}
ON DUPLICATE KEY UPDATE seq = IF(until <= $2, VALUES(seq), seq), stamp = IF(until <= $2, VALUES(stamp), stamp),
  id = IF(until <= $2, VALUES(id), id), digest = IF(until <= $2, VALUES(digest), digest),
  until = IF(until <= $2, VALUES(until), until)
