-- In:  $1 kind, $2 tenant, $3 name
-- Out: kind, tenant, name, version, value
SELECT kind, tenant, name, version, value FROM tampu.document
WHERE kind = $1::text AND tenant = $2::text AND name = $3::text
