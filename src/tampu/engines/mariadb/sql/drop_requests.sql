-- In:  $1 tenant, $2 idempotency keys
DELETE FROM tampu_idempotency WHERE tenant = $1 AND word IN ($2) LIMIT #2
