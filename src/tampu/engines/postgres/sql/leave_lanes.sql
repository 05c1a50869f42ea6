-- Places that are given back, and who is next in those groups. The caller has the lanes' locks.
-- In:  arrays: $1 q, $2 lane, $3 seq that had a place; $4 of a group, at most so many go on
-- Out: card, run_at; of groups with a pace nobody goes on here: where a place was given back there is a
--      row with only q and lane
WITH over AS MATERIALIZED (
  SELECT i.q, i.lane, l.place FROM unnest($1::int8[], $2::bytea[], $3::int8[]) AS i(q, lane, seq)
  LEFT JOIN LATERAL (
    SELECT l.ctid AS place FROM tampu.lane l WHERE l.q = i.q AND l.lane = i.lane AND l.seq = i.seq OFFSET 0) AS l ON true),
gone AS (DELETE FROM tampu.lane WHERE ctid = ANY (ARRAY(SELECT place FROM over))),
open AS MATERIALIZED (
  SELECT g.q, g.lane, greatest(coalesce(u.places, 0), 1)
    + g.leaving - (SELECT count(*) FROM tampu.lane l WHERE l.q = g.q AND l.lane = g.lane) AS room,
    u.pace, g.leaving
  FROM (SELECT q, lane, count(place) AS leaving FROM over GROUP BY q, lane) AS g
  CROSS JOIN LATERAL (SELECT u.places, u.pace FROM tampu.queue u WHERE u.q = g.q OFFSET 0) AS u),
next AS MATERIALIZED (
  SELECT h.* FROM open o CROSS JOIN LATERAL (
    SELECT h.ctid AS place, h.* FROM tampu.held h WHERE h.q = o.q AND h.lane = o.lane
    ORDER BY h.q, h.lane, h.seq LIMIT least(greatest(o.room, 0), $4::int8)) AS h
  WHERE o.pace IS NULL),
out AS (DELETE FROM tampu.held WHERE ctid = ANY (ARRAY(SELECT place FROM next)))
SELECT m.seq, m.q, n.attempts, m.created / 1000 + coalesce(m.ahead, 0), m.id, m.lane, m.rank, m.max_attempts,
  m.expires, m.key IS NOT NULL, n.run_at
FROM next n CROSS JOIN LATERAL (SELECT * FROM tampu.message m WHERE m.seq = n.seq OFFSET 0) AS m
UNION ALL
SELECT NULL, o.q, NULL, NULL, NULL, o.lane, NULL, NULL, NULL, NULL, NULL FROM open o WHERE o.pace IS NOT NULL AND o.leaving > 0
ORDER BY 1
