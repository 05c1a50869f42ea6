-- Who is next in groups with a pace. The caller has the lanes' locks.
-- In:  arrays: $1 q, $2 lane, $3 at most so many
-- Out: card, run_at; they leave held
WITH next AS MATERIALIZED (
  SELECT h.* FROM unnest($1::int8[], $2::bytea[], $3::int8[]) AS o(q, lane, room) CROSS JOIN LATERAL (
    SELECT h.ctid AS place, h.* FROM tampu.held h WHERE h.q = o.q AND h.lane = o.lane
    ORDER BY h.q, h.lane, h.seq LIMIT o.room) AS h),
out AS (DELETE FROM tampu.held WHERE ctid = ANY (ARRAY(SELECT place FROM next)))
SELECT m.seq, m.q, n.attempts, m.created / 1000 + coalesce(m.ahead, 0), m.id, m.lane, m.rank, m.max_attempts,
  m.expires, m.key IS NOT NULL, n.run_at
FROM next n CROSS JOIN LATERAL (SELECT * FROM tampu.message m WHERE m.seq = n.seq OFFSET 0) AS m ORDER BY m.seq
