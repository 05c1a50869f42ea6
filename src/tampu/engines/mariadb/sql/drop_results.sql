-- In:  $1 seqs
DELETE FROM tampu_result WHERE seq IN ($1) LIMIT #1
