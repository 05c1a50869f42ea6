-- In:  $1 seqs
-- Out: seq, q, attempts, stamp, id of those that are leased; their workers are asked to stop
UPDATE tampu.leased SET cancel = true WHERE seq = ANY ($1::int8[]) RETURNING seq, q, attempts, stamp, id
