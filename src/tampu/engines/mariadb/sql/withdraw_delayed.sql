-- In:  $1 seqs
-- Out: seq, attempts of those that were delayed
DELETE FROM tampu_delayed WHERE seq IN ($1) LIMIT #1 RETURNING seq, attempts
