-- In:  columns: $1 until, $2 lease
DELETE FROM tampu_claim WHERE {(until = $1 AND lease = $2) OR} LIMIT #1
