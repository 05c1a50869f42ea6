-- sweep: messages that wait, in ready, delayed or held; locked. What somebody else has locked is left.
-- In:  $1 seqs
-- Out: card, with 0 for the attempts
WITH card AS MATERIALIZED (
  SELECT m.seq, m.q, 0, m.created / 1000 + coalesce(m.ahead, 0), m.id, m.lane, m.rank, m.max_attempts, m.expires,
    m.key IS NOT NULL
  FROM unnest($1::int8[]) AS s(seq) CROSS JOIN LATERAL (SELECT * FROM tampu.message m WHERE m.seq = s.seq OFFSET 0) AS m),
plain AS MATERIALIZED (
  SELECT c.* FROM card c CROSS JOIN LATERAL (
    SELECT 1 FROM tampu.ready r
    WHERE r.q = c.q AND r.rank = 0 AND r.pos = c.seq AND r.seq = c.seq OFFSET 0 FOR UPDATE SKIP LOCKED) AS r),
ranked AS MATERIALIZED (
  SELECT c.* FROM card c CROSS JOIN LATERAL (
    SELECT 1 FROM tampu.ready r
    WHERE r.q = c.q AND r.seq = c.seq AND (r.rank <> 0 OR r.pos <> r.seq) OFFSET 0 FOR UPDATE SKIP LOCKED) AS r),
late AS MATERIALIZED (
  SELECT c.* FROM card c CROSS JOIN LATERAL (
    SELECT 1 FROM tampu.delayed d WHERE d.seq = c.seq OFFSET 0 FOR UPDATE SKIP LOCKED) AS d),
kept AS MATERIALIZED (
  SELECT c.* FROM card c CROSS JOIN LATERAL (
    SELECT 1 FROM tampu.held h WHERE h.seq = c.seq OFFSET 0 FOR UPDATE SKIP LOCKED) AS h)
SELECT * FROM plain UNION ALL SELECT * FROM ranked UNION ALL SELECT * FROM late UNION ALL SELECT * FROM kept
