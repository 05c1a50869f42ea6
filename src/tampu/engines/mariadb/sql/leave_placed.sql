-- In:  $1 q, $2 seqs
DELETE FROM tampu_placed WHERE q = $1 AND seq IN ($2) LIMIT #2
