-- In:  $1 seqs
-- Out: seq, q, key, expires
SELECT seq, q, word, expires FROM tampu_message FORCE INDEX (PRIMARY) WHERE seq IN ($1)
