-- Wakes who waits, in a commit of its own that nobody waits for until it is on disk.
-- In:  $1 channel, $2 who rings
SELECT set_config('synchronous_commit', 'off', true), pg_notify($1::text, $2::text)
