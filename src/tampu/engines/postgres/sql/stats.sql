-- In:  $1 tenant, $2 queue or NULL for all, $3 the time or NULL (the server's clock)
-- Out: name, state number (NULL: nothing counted yet), how many, when the oldest ready message was published, the time
SELECT u.name, t.kind, t.n, (
  SELECT m.created FROM tampu.message m WHERE m.seq = (
    SELECT min(o.seq) FROM (
      (SELECT r.seq FROM tampu.ready r WHERE r.q = u.q AND r.rank = 0 ORDER BY r.q, r.rank, r.pos LIMIT 1)
      UNION ALL
      (SELECT r.seq FROM tampu.ready r WHERE r.q = u.q AND (r.rank <> 0 OR r.pos <> r.seq) ORDER BY r.q, r.seq LIMIT 1)
    ) AS o)), coalesce($3::int8, (extract(epoch FROM statement_timestamp()) * 1000000)::int8)
FROM tampu.queue u
LEFT JOIN LATERAL (
  SELECT y.kind, sum(y.n)::int8 AS n FROM tampu.tally y WHERE y.q = u.q GROUP BY y.kind) AS t ON true
WHERE u.tenant = $1::text AND ($2::text IS NULL OR u.name = $2::text) ORDER BY u.name, t.kind
