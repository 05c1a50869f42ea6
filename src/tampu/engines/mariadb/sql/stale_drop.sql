-- The index in Redis has these now.
-- In:  $1 nos
DELETE FROM tampu_stale WHERE no IN ($1) LIMIT #1
