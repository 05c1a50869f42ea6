-- Counts added up, so that stats add few rows. Others skip what is being folded.
-- In:  $1 at most so many rows
WITH gone AS (
  DELETE FROM tampu.tally WHERE no = ANY (ARRAY(
    SELECT no FROM tampu.tally ORDER BY no LIMIT $1::int8 FOR UPDATE SKIP LOCKED))
  RETURNING q, kind, n)
INSERT INTO tampu.tally (q, kind, n) SELECT q, kind, sum(n) FROM gone GROUP BY q, kind HAVING sum(n) <> 0
