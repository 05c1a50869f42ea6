-- In:  $1 tenant, arrays: $2 number or NULL, $3 stamp, $4 id
-- Out: which item (from 1), seq, q; messages of other tenants are not found
SELECT i.n, m.seq, m.q FROM unnest($2::int8[], $3::int8[], $4::uuid[]) WITH ORDINALITY AS i(seq, stamp, id, n)
CROSS JOIN LATERAL (
  SELECT m.seq, m.q FROM tampu.message m
  WHERE m.seq = i.seq AND m.id IS NULL AND m.created / 1000 + coalesce(m.ahead, 0) = i.stamp
  UNION ALL SELECT m.seq, m.q FROM tampu.message m WHERE m.id = i.id) AS m
JOIN tampu.queue u ON u.q = m.q AND u.tenant = $1::text
