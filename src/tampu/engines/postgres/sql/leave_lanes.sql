-- Turns that have ended, and who is next. The caller has the lanes' locks.
-- In:  arrays: $1 q, $2 lane, $3 seq whose turn it was
-- Out: card, run_at
WITH over AS MATERIALIZED (
  SELECT l.ctid AS place, l.q, l.lane FROM unnest($1::int8[], $2::bytea[], $3::int8[]) AS i(q, lane, seq)
  CROSS JOIN LATERAL (
    SELECT l.ctid, l.q, l.lane FROM tampu.lane l WHERE l.q = i.q AND l.lane = i.lane AND l.seq = i.seq OFFSET 0) AS l),
gone AS (DELETE FROM tampu.lane WHERE ctid = ANY (ARRAY(SELECT place FROM over))),
next AS MATERIALIZED (
  SELECT h.* FROM over o CROSS JOIN LATERAL (
    SELECT h.ctid AS place, h.* FROM tampu.held h WHERE h.q = o.q AND h.lane = o.lane
    ORDER BY h.q, h.lane, h.seq LIMIT 1) AS h),
out AS (DELETE FROM tampu.held WHERE ctid = ANY (ARRAY(SELECT place FROM next)))
SELECT m.seq, m.q, n.attempts, m.created / 1000 + coalesce(m.ahead, 0), m.id, m.lane, m.rank, m.max_attempts,
  m.expires, m.key IS NOT NULL, n.run_at
FROM next n CROSS JOIN LATERAL (SELECT * FROM tampu.message m WHERE m.seq = n.seq OFFSET 0) AS m ORDER BY m.seq
