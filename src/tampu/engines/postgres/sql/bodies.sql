-- In:  $1 seqs
-- Out: seq, body
SELECT m.seq, m.body FROM tampu.message m WHERE m.seq = ANY ($1::int8[])
