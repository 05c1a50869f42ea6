-- In:  $1 kind, $2 tenant, $3 name
-- Out: kind, tenant, name, version, value
SELECT kind, tenant, name, version, value FROM tampu_document WHERE kind = $1 AND tenant = $2 AND name = $3
