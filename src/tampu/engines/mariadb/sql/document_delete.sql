-- In:  $1 kind, $2 tenant, $3 name
-- Out: a row if it was there
DELETE FROM tampu_document WHERE kind = $1 AND tenant = $2 AND name = $3 RETURNING name
