-- In:  $1 seqs
-- Out: card, run_at, whether it waits for its group's turn; the others leave held
WITH found AS MATERIALIZED (
  SELECT h.* FROM unnest($1::int8[]) AS s(seq) CROSS JOIN LATERAL (
    SELECT h.ctid AS place, h.* FROM tampu.held h WHERE h.seq = s.seq OFFSET 0 FOR UPDATE) AS h),
out AS (DELETE FROM tampu.held WHERE ctid = ANY (ARRAY(SELECT place FROM found WHERE lane IS NULL)))
SELECT m.seq, m.q, f.attempts, m.created / 1000 + coalesce(m.ahead, 0), m.id, m.lane, m.rank, m.max_attempts,
  m.expires, m.key IS NOT NULL, f.run_at, f.lane IS NOT NULL
FROM found f CROSS JOIN LATERAL (SELECT * FROM tampu.message m WHERE m.seq = f.seq OFFSET 0) AS m ORDER BY m.seq
