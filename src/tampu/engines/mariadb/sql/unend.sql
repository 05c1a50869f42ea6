-- Ended messages leave their index.
-- In:  $1 seqs
-- Out: seq, attempts
DELETE FROM tampu_ended WHERE seq IN ($1) LIMIT #1 RETURNING seq, attempts
