-- claim: the head of a queue's index becomes leased.
-- In:  $1 q, $2 at most so many, $3 lease, $4 for how long, $5 worker,
--      $6 the time or NULL (the server's, of the transaction),
--      $7 position at rank 0 to begin behind, if nothing has a lower rank; NULL: begin at the front
-- Out: seq, attempts before, created, stamp, max_attempts, expires, has a key, id, lane, body, position if the rank is 0,
--      in the order of delivery.
-- What is past its expiry leaves the index too and is answered, but not leased: the caller ends it.
-- What other claims are taking is passed over. Look-ups are kept to the primary key by LATERAL … OFFSET 0.
WITH t AS MATERIALIZED (
  SELECT coalesce($6::int8, (extract(epoch FROM transaction_timestamp()) * 1000000)::int8) AS now),
start AS MATERIALIZED (
  SELECT CASE WHEN $7::int8 IS NULL OR EXISTS (SELECT 1 FROM tampu.ready u WHERE u.q = $1::int8 AND u.rank < 0)
              THEN -9223372036854775808 ELSE 0 END AS rank, coalesce($7::int8, 0) AS pos),
head AS MATERIALIZED (
  SELECT r.ctid AS place, r.rank, r.pos, r.seq, r.attempts FROM tampu.ready r
  WHERE r.q = $1::int8 AND (r.rank, r.pos) > ((SELECT rank FROM start), (SELECT pos FROM start))
  ORDER BY r.rank, r.pos LIMIT $2::int8 FOR UPDATE SKIP LOCKED),
taken AS MATERIALIZED (
  SELECT h.rank AS place, h.pos, h.attempts, m.* FROM head h
  CROSS JOIN LATERAL (SELECT * FROM tampu.message m WHERE m.seq = h.seq OFFSET 0) AS m),
out AS (DELETE FROM tampu.ready r WHERE r.ctid = ANY (ARRAY(SELECT place FROM head))),
leasing AS (
  INSERT INTO tampu.leased (seq, lease, until, stamp, q, attempts, cancel, id, worker, lane)
  SELECT seq, $3::int8, t.now + $4::int8, created / 1000 + coalesce(ahead, 0), q, attempts + 1, false, id, $5::bytea, lane
  FROM taken, t WHERE expires IS NULL OR expires > t.now)
SELECT seq, attempts, created, created / 1000 + coalesce(ahead, 0), max_attempts, expires, key IS NOT NULL, id, lane, body,
  CASE WHEN place = 0 THEN pos END
FROM taken ORDER BY place, pos
