-- In:  columns: $1 when, $2 seq
DELETE FROM tampu_expiry WHERE {(at = $1 AND seq = $2) OR} LIMIT #1
