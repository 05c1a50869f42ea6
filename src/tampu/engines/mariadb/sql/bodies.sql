-- In:  $1 seqs
-- Out: seq, body
SELECT seq, body FROM tampu_message FORCE INDEX (PRIMARY) WHERE seq IN ($1)
