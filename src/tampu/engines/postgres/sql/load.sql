-- Messages with the index each is in.
-- In:  $1 seqs
-- Out: seq, q, created, stamp, max_attempts, expires, id, body, state number, attempts, run_at, ended at, reason,
--      whether a cancel was asked for, the last error; in the order asked for
SELECT m.seq, m.q, m.created, m.created / 1000 + coalesce(m.ahead, 0), m.max_attempts, m.expires, m.id, m.body,
  p.state, p.attempts, p.run_at, p.at, p.reason, p.cancel, f.error
FROM unnest($1::int8[]) WITH ORDINALITY AS s(seq, n)
CROSS JOIN LATERAL (SELECT * FROM tampu.message m WHERE m.seq = s.seq OFFSET 0) AS m
CROSS JOIN LATERAL (
  SELECT 0 AS state, attempts, NULL::int8 AS run_at, NULL::int8 AS at, NULL::bytea AS reason, false AS cancel
    FROM tampu.ready r WHERE r.q = m.q AND r.rank = 0 AND r.pos = m.seq AND r.seq = m.seq
  UNION ALL SELECT state, attempts, NULL, at, NULL, false FROM tampu.ended e WHERE e.seq = m.seq
  UNION ALL SELECT 2, attempts, NULL, NULL, NULL, cancel FROM tampu.leased l WHERE l.seq = m.seq
  UNION ALL SELECT 1, attempts, run_at, NULL, NULL, false FROM tampu.delayed d WHERE d.seq = m.seq
  UNION ALL SELECT 0, attempts, NULL, NULL, NULL, false FROM tampu.ready r
    WHERE r.q = m.q AND r.seq = m.seq AND (r.rank <> 0 OR r.pos <> r.seq)
  UNION ALL SELECT 5, attempts, NULL, at, reason, false FROM tampu.dead d WHERE d.seq = m.seq
  UNION ALL SELECT 3, attempts, run_at, NULL, reason, false FROM tampu.held h WHERE h.seq = m.seq
  LIMIT 1) AS p
LEFT JOIN LATERAL (SELECT f.error FROM tampu.failure f WHERE f.seq = m.seq ORDER BY f.no DESC LIMIT 1) AS f ON true
ORDER BY s.n
