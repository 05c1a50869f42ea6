-- How many others may be listening. Sessions of other roles do not show what they are: they may.
-- In:  $1 the name that listening sessions have
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
  AND (application_name = $1::text OR application_name IS NULL)
