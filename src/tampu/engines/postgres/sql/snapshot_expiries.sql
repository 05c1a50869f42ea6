-- In:  $1 seqs
-- Out: seq, when it expires, of those that do
SELECT m.seq, m.expires FROM unnest($1::int8[]) AS s(seq)
CROSS JOIN LATERAL (SELECT m.seq, m.expires FROM tampu.message m WHERE m.seq = s.seq OFFSET 0) AS m
WHERE m.expires IS NOT NULL
