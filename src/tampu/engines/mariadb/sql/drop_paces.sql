-- In:  $1 q, $2 lanes
DELETE FROM tampu_pace WHERE q = $1 AND lane IN ($2) LIMIT #2
