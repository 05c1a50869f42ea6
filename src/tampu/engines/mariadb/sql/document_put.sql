-- In:  $1 kind, $2 tenant, $3 name, $4 version, $5 value. The caller has locked the revision.
INSERT INTO tampu_document (kind, tenant, name, version, value) VALUES ($1, $2, $3, $4, $5)
ON DUPLICATE KEY UPDATE version = VALUES(version), value = VALUES(value)
