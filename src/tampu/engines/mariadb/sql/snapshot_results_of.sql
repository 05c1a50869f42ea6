-- In:  $1 seqs, $2 the time
-- Out: seq, the result, of those whose result is kept
SELECT seq, body FROM tampu_result FORCE INDEX (PRIMARY) WHERE seq IN ($1) AND until > $2
