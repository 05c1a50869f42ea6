-- In:  $1 kind, $2 tenant
-- Out: kind, tenant, name, version, value of each
SELECT kind, tenant, name, version, value FROM tampu_document FORCE INDEX (PRIMARY)
WHERE kind = $1 AND tenant = $2 ORDER BY name
