-- Schema 4. An idempotency key is unique in its queue; it was unique in its tenant. Keys of users move under the tenant
-- with a slash before it, as `queue/key`. If the message is gone, the queue is not known and the part before the slash
-- is empty. See `tampu.engines.sql.rules.idempotency_keys`. Rows that have a slash in their tenant stay as they are.

ALTER TABLE tampu_idempotency
  MODIFY tenant varchar(129) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin, MODIFY word varbinary(2177);
UPDATE tampu_idempotency d SET
  word = CONCAT(COALESCE((SELECT u.name FROM tampu_message m JOIN tampu_queue u ON u.q = m.q
    WHERE m.seq = d.seq AND u.tenant = d.tenant), ''), '/', d.word),
  tenant = CONCAT('/', d.tenant)
WHERE LOCATE('/', d.tenant) = 0;
