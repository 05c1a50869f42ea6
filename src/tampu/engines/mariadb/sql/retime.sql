-- In:  $1 when they are to run now, $2 seqs
UPDATE tampu_delayed FORCE INDEX (PRIMARY) SET run_at = $1 WHERE seq IN ($2)
