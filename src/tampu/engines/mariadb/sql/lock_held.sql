-- In:  $1 seqs
-- Out: seq of those that nobody else has locked; now we have
SELECT seq FROM tampu_held FORCE INDEX (PRIMARY) WHERE seq IN ($1) FOR UPDATE SKIP LOCKED
