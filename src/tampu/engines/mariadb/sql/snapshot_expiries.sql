-- In:  $1 seqs
-- Out: seq, when it expires, of those that do
SELECT seq, expires FROM tampu_message FORCE INDEX (PRIMARY) WHERE seq IN ($1) AND expires IS NOT NULL
