-- Rows of `ready` that the caller has locked.
-- In:  $1 q, $2 rank, $3 positions
DELETE FROM tampu_ready WHERE q = $1 AND place = $2 AND pos IN ($3) LIMIT #3
