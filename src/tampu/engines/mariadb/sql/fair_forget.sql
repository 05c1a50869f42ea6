-- In:  $1 q, $2 groups
DELETE FROM tampu_fair WHERE q = $1 AND lane IN ($2) LIMIT #2
