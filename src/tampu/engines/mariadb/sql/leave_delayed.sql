-- In:  $1 seqs of rows that the caller has locked
DELETE FROM tampu_delayed WHERE seq IN ($1) LIMIT #1
