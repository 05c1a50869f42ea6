-- In:  $1 kind, $2 tenant, $3 name
-- Out: a row if it was there
DELETE FROM tampu.document WHERE kind = $1::text AND tenant = $2::text AND name = $3::text RETURNING name
