-- In:  $1 seqs
-- Out: seq, the number of its latest failed attempt, where there was one
SELECT s.seq, f.no FROM unnest($1::int8[]) AS s(seq) CROSS JOIN LATERAL (
  SELECT f.no FROM tampu.failure f WHERE f.seq = s.seq ORDER BY f.no DESC LIMIT 1) AS f
