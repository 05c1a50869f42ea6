-- In:  $1 kind, $2 tenant, $3 name, $4 version, $5 value. The caller has locked the revision.
INSERT INTO tampu.document (kind, tenant, name, version, value)
VALUES ($1::text, $2::text, $3::text, $4::int8, $5::bytea)
ON CONFLICT (kind, tenant, name) DO UPDATE SET version = excluded.version, value = excluded.value
