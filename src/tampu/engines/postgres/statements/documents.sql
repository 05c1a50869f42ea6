-- Statements of documents: settings, schedules, keys and notes.

-- name: select_revision
-- The revision: a number that changes with every change of a document.
-- Run by: maintenance, settings
-- In:  nothing
-- Out: the revision
SELECT n FROM tampu.revision

-- name: lock_revision
-- Locks the revision: documents are changed by one process at a time.
-- Run by: put and delete of a document
-- In:  nothing
-- Out: the revision
SELECT n FROM tampu.revision FOR UPDATE

-- name: set_revision
-- Sets the revision.
-- Run by: put and delete of a document
-- In:  $1 the new revision
-- Out: nothing
UPDATE tampu.revision SET n = $1::int8

-- name: put_document
-- Writes a document. The caller has locked the revision.
-- Run by: put of a document
-- In:  $1 kind, $2 tenant, $3 name, $4 version, $5 value
-- Out: nothing
INSERT INTO tampu.document (kind, tenant, name, version, value)
VALUES ($1::text, $2::text, $3::text, $4::int8, $5::bytea)
ON CONFLICT (kind, tenant, name) DO UPDATE SET version = excluded.version, value = excluded.value

-- name: delete_document
-- Removes a document. The caller has locked the revision.
-- Run by: delete of a document
-- In:  $1 kind, $2 tenant, $3 name
-- Out: a row if it was there
DELETE FROM tampu.document WHERE kind = $1::text AND tenant = $2::text AND name = $3::text RETURNING name

-- name: select_document
-- One document.
-- Run by: get of a document
-- In:  $1 kind, $2 tenant, $3 name
-- Out: kind, tenant, name, version, value
SELECT kind, tenant, name, version, value FROM tampu.document
WHERE kind = $1::text AND tenant = $2::text AND name = $3::text

-- name: list_documents
-- The documents of one kind and tenant whose names are in a range.
-- Run by: list of documents
-- In:  $1 kind, $2 tenant, $3 first name, $4 only after this name, $5 only before this name, $6 at most
-- Out: kind, tenant, name, version, value
SELECT kind, tenant, name, version, value FROM tampu.document
WHERE kind = $1::text AND tenant = $2::text AND name >= $3::text AND name > $4::text AND name < $5::text
ORDER BY name LIMIT $6::int8

-- name: count_documents
-- The number of documents of one kind and tenant.
-- Run by: the limit for documents of Spark programs
-- In:  $1 kind, $2 tenant
-- Out: how many
SELECT count(*) FROM tampu.document WHERE kind = $1::text AND tenant = $2::text

-- name: list_all_documents
-- Every document.
-- Run by: list of all documents
-- In:  nothing
-- Out: kind, tenant, name, version, value
SELECT kind, tenant, name, version, value FROM tampu.document ORDER BY kind, tenant, name
