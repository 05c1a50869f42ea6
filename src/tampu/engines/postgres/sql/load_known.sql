-- In:  $1 tenant, $2 first and $3 last id that is looked for (16 bytes each)
-- Out: ids between them that messages of the tenant have
WITH found AS MATERIALIZED (
  SELECT id, q FROM tampu.message
  WHERE id BETWEEN encode($2::bytea, 'hex')::uuid AND encode($3::bytea, 'hex')::uuid)
SELECT f.id FROM found f JOIN tampu.queue u ON u.q = f.q WHERE u.tenant = $1::text
