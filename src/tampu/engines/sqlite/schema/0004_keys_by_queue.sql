-- Schema 4. An idempotency key is unique in its queue; it was unique in its tenant. Keys of users move under the tenant
-- with a slash before it, as `queue/key`. If the message is gone, the queue is not known and the part before the slash
-- is empty. See `tampu.engines.sql.rules.idempotency_keys`. Rows that have a slash in their tenant stay as they are.

UPDATE tampu_idempotency SET
  key = coalesce((SELECT u.name FROM tampu_message m JOIN tampu_queue u ON u.q = m.q
    WHERE m.seq = tampu_idempotency.seq AND u.tenant = tampu_idempotency.tenant), '') || '/' || key,
  tenant = '/' || tenant
WHERE instr(tenant, '/') = 0;
