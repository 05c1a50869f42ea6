-- In:  $1 tenant, $2 queue or NULL for all, $3 the time or NULL (the server's)
-- Out: q, name, when the oldest ready message was published, the time
SELECT u.q, u.name, (
  SELECT m.created FROM tampu_message m FORCE INDEX (PRIMARY) WHERE m.seq = LEAST(
    COALESCE((SELECT r.seq FROM tampu_ready r FORCE INDEX (PRIMARY)
      WHERE r.q = u.q AND r.place = 0 ORDER BY r.pos LIMIT 1), 9223372036854775807),
    COALESCE((SELECT p.seq FROM tampu_placed p FORCE INDEX (PRIMARY)
      WHERE p.q = u.q ORDER BY p.seq LIMIT 1), 9223372036854775807))),
  COALESCE($3, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
FROM tampu_queue u FORCE INDEX (tenant_name) WHERE u.tenant = $1 AND ($2 IS NULL OR u.name = $2) ORDER BY u.name
