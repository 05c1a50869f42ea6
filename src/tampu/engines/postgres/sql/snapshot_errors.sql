-- In:  arrays: $1 seq, $2 number of a failed attempt
-- Out: seq, its error
SELECT f.seq, f.error FROM unnest($1::int8[], $2::int8[]) AS s(seq, no)
CROSS JOIN LATERAL (SELECT f.seq, f.error FROM tampu.failure f WHERE f.seq = s.seq AND f.no = s.no OFFSET 0) AS f
