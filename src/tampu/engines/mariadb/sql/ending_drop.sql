-- In:  $1 q, $2 state number, $3 nos
DELETE FROM tampu_ending WHERE q = $1 AND state = $2 AND no IN ($3) LIMIT #3
