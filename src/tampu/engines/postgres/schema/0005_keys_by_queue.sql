-- Schema 5. An idempotency key is unique in its queue; it was unique in its tenant. Keys of users move under the tenant
-- with a slash before it, as `queue/key`. If the message is gone, the queue is not known and the part before the slash
-- is empty. See `tampu.engines.sql.rules.idempotency_keys`. Rows that have a slash in their tenant stay as they are.

UPDATE tampu.idempotency d SET
  key = convert_to(coalesce((SELECT u.name FROM tampu.message m JOIN tampu.queue u ON u.q = m.q
    WHERE m.seq = d.seq AND u.tenant = d.tenant), '') || '/', 'UTF8') || d.key,
  tenant = '/' || d.tenant
WHERE strpos(d.tenant, '/') = 0;
