-- In:  $1 seqs
-- Out: seq, bytes of its body and its result
SELECT m.seq, m.size + coalesce(r.size, 0) FROM unnest($1::int8[]) AS s(seq)
CROSS JOIN LATERAL (
  SELECT m.seq, octet_length(m.body)::int8 AS size FROM tampu.message m WHERE m.seq = s.seq OFFSET 0) AS m
LEFT JOIN LATERAL (
  SELECT octet_length(r.body)::int8 AS size FROM tampu.result r WHERE r.seq = s.seq OFFSET 0) AS r ON true
