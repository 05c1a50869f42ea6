-- In:  $1 seqs
-- Out: seq, q, attempts, stamp, id of those that are leased; locked
SELECT seq, q, attempts, stamp, id FROM tampu_leased FORCE INDEX (PRIMARY) WHERE seq IN ($1) FOR UPDATE
