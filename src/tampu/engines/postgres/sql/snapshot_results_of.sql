-- In:  $1 seqs, $2 the time
-- Out: seq, the result, of those whose result is kept
SELECT r.seq, r.body FROM unnest($1::int8[]) AS s(seq)
CROSS JOIN LATERAL (SELECT r.seq, r.body FROM tampu.result r WHERE r.seq = s.seq AND r.until > $2::int8 OFFSET 0) AS r
