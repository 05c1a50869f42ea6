-- In:  $1 seqs
-- Out: seq, attempts, run_at of those that were held
DELETE FROM tampu_held WHERE seq IN ($1) LIMIT #1 RETURNING seq, attempts, run_at
