-- Takes waiting messages out of ready, delayed or held. Waits for a claim that is taking one.
-- In:  $1 seqs
-- Out: card, number of the state it was in; messages that did not wait are left out
WITH card AS MATERIALIZED (
  SELECT m.seq, m.q, m.created / 1000 + coalesce(m.ahead, 0) AS stamp, m.id, m.lane, m.rank, m.max_attempts, m.expires,
    m.key IS NOT NULL AS named
  FROM unnest($1::int8[]) AS s(seq) CROSS JOIN LATERAL (SELECT * FROM tampu.message m WHERE m.seq = s.seq OFFSET 0) AS m),
plain AS MATERIALIZED (
  SELECT r.* FROM card c CROSS JOIN LATERAL (
    SELECT r.ctid AS place, r.seq, r.attempts FROM tampu.ready r
    WHERE r.q = c.q AND r.rank = 0 AND r.pos = c.seq AND r.seq = c.seq OFFSET 0 FOR UPDATE) AS r),
ranked AS MATERIALIZED (
  SELECT r.* FROM card c CROSS JOIN LATERAL (
    SELECT r.ctid AS place, r.seq, r.attempts FROM tampu.ready r
    WHERE r.q = c.q AND r.seq = c.seq AND (r.rank <> 0 OR r.pos <> r.seq) OFFSET 0 FOR UPDATE) AS r),
late AS MATERIALIZED (
  SELECT d.* FROM card c CROSS JOIN LATERAL (
    SELECT d.ctid AS place, d.seq, d.attempts FROM tampu.delayed d WHERE d.seq = c.seq OFFSET 0 FOR UPDATE) AS d),
kept AS MATERIALIZED (
  SELECT h.* FROM card c CROSS JOIN LATERAL (
    SELECT h.ctid AS place, h.seq, h.attempts FROM tampu.held h WHERE h.seq = c.seq OFFSET 0 FOR UPDATE) AS h),
out_ready AS (
  DELETE FROM tampu.ready WHERE ctid = ANY (ARRAY(SELECT place FROM plain UNION ALL SELECT place FROM ranked))),
out_delayed AS (DELETE FROM tampu.delayed WHERE ctid = ANY (ARRAY(SELECT place FROM late))),
out_held AS (DELETE FROM tampu.held WHERE ctid = ANY (ARRAY(SELECT place FROM kept))),
out AS MATERIALIZED (
  SELECT seq, attempts, 0 AS state FROM plain UNION ALL SELECT seq, attempts, 0 FROM ranked
  UNION ALL SELECT seq, attempts, 1 FROM late UNION ALL SELECT seq, attempts, 3 FROM kept)
SELECT m.seq, m.q, o.attempts, m.created / 1000 + coalesce(m.ahead, 0), m.id, m.lane, m.rank, m.max_attempts,
  m.expires, m.key IS NOT NULL, o.state
FROM out o CROSS JOIN LATERAL (SELECT * FROM tampu.message m WHERE m.seq = o.seq OFFSET 0) AS m
