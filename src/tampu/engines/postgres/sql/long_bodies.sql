-- In:  $1 seqs
-- Out: seq, body of those with more than 15 fields; only these can say that a message dies at its deadline
SELECT m.seq, m.body FROM tampu.message m WHERE m.seq = ANY ($1::int8[]) AND substring(m.body FROM 1 FOR 1) >= '\xdc'
