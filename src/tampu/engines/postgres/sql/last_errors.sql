-- In:  $1 seqs
-- Out: seq, the error of its latest failed attempt, where there was one
SELECT s.seq, f.error FROM unnest($1::int8[]) AS s(seq) CROSS JOIN LATERAL (
  SELECT f.error FROM tampu.failure f WHERE f.seq = s.seq ORDER BY f.no DESC LIMIT 1) AS f
