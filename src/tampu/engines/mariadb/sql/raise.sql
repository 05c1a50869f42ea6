-- replay: dead messages leave their index.
-- In:  $1 seqs
-- Out: seq
DELETE FROM tampu_dead WHERE seq IN ($1) LIMIT #1 RETURNING seq
