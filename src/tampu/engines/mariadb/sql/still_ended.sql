-- In:  $1 seqs
-- Out: those that are still in the index of ended messages
SELECT seq FROM tampu_ended FORCE INDEX (PRIMARY) WHERE seq IN ($1)
