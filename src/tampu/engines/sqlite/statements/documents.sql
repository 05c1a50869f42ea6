-- Statements of documents: settings, schedules, keys and notes.

-- name: select_revision
-- The revision: a number that changes with every change of a document.
-- Run by: maintenance, settings
-- In:  nothing
-- Out: the revision
SELECT n FROM tampu_counter WHERE q = 0 AND kind = 2

-- name: lock_revision
-- The revision. Only one commit writes at a time, so it need not be locked.
-- Run by: put and delete of a document
-- In:  nothing
-- Out: the revision
SELECT n FROM tampu_counter WHERE q = 0 AND kind = 2

-- name: set_revision
-- Sets the revision.
-- Run by: put and delete of a document
-- In:  $1 the new revision
-- Out: nothing
UPDATE tampu_counter SET n = $1 WHERE q = 0 AND kind = 2

-- name: put_document
-- Writes a document.
-- Run by: put of a document
-- In:  $1 kind, $2 tenant, $3 name, $4 version, $5 value
-- Out: nothing
INSERT OR REPLACE INTO tampu_document (kind, tenant, name, version, value) VALUES ($1, $2, $3, $4, $5)

-- name: delete_document
-- Removes a document.
-- Run by: delete of a document
-- In:  $1 kind, $2 tenant, $3 name
-- Out: a row if it was there
DELETE FROM tampu_document WHERE kind = $1 AND tenant = $2 AND name = $3 RETURNING name

-- name: select_document
-- One document.
-- Run by: get of a document
-- In:  $1 kind, $2 tenant, $3 name
-- Out: kind, tenant, name, version, value
SELECT kind, tenant, name, version, value FROM tampu_document WHERE kind = $1 AND tenant = $2 AND name = $3

-- name: list_documents
-- The documents of one kind and tenant.
-- Run by: list of documents
-- In:  $1 kind, $2 tenant
-- Out: kind, tenant, name, version, value
SELECT kind, tenant, name, version, value FROM tampu_document WHERE kind = $1 AND tenant = $2 ORDER BY name

-- name: list_all_documents
-- Every document.
-- Run by: list of all documents
-- In:  nothing
-- Out: kind, tenant, name, version, value
SELECT kind, tenant, name, version, value FROM tampu_document ORDER BY kind, tenant, name
