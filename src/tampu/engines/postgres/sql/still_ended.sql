-- In:  $1 seqs
-- Out: those that are still in the index of ended messages, in the order asked for
SELECT e.seq FROM unnest($1::int8[]) WITH ORDINALITY AS s(seq, n)
CROSS JOIN LATERAL (SELECT e.seq FROM tampu.ended e WHERE e.seq = s.seq OFFSET 0) AS e ORDER BY s.n
