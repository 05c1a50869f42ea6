-- In:  $1 seqs
-- Out: seq, body of those with more than 15 fields; only these can say that a message dies at its deadline
SELECT seq, body FROM tampu_message FORCE INDEX (PRIMARY) WHERE seq IN ($1) AND LEFT(body, 1) >= 0xDC
