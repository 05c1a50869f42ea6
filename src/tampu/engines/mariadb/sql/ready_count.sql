-- In:  $1 tenant, $2 queue
-- Out: how many messages are ready; 0 for a queue that does not exist
SELECT CAST(COALESCE(SUM(y.n), 0) AS SIGNED) FROM tampu_tally y FORCE INDEX (of_queue)
WHERE y.q = (SELECT u.q FROM tampu_queue u FORCE INDEX (tenant_name) WHERE u.tenant = $1 AND u.name = $2)
  AND y.kind = 0
