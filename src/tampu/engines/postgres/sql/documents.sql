-- In:  $1 kind, $2 tenant
-- Out: kind, tenant, name, version, value of each
SELECT kind, tenant, name, version, value FROM tampu.document
WHERE kind = $1::text AND tenant = $2::text ORDER BY name
