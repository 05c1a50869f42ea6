-- Statements of a session: its settings, the server's time, who leads maintenance, and wake-ups.

-- name: configure_session
-- Sets how our own sessions plan. The planner must use the indexes: tables grow and shrink by millions of rows between
-- two ANALYZE runs. Every statement is written so that one plan is good for all parameters.
-- Run by: connect
-- In:  $1 whether for this transaction only (behind a pooler the session is not ours)
-- Out: nothing of use
SELECT set_config('enable_seqscan', 'off', $1::boolean), set_config('enable_hashjoin', 'off', $1::boolean),
  set_config('enable_mergejoin', 'off', $1::boolean), set_config('jit', 'off', $1::boolean),
  set_config('enable_sort', 'off', $1::boolean), set_config('enable_incremental_sort', 'off', $1::boolean),
  set_config('plan_cache_mode', 'force_generic_plan', $1::boolean)

-- name: select_session_number
-- The process id of the server's session.
-- Run by: connect, to detect a pooler
-- In:  nothing
-- Out: the process id
SELECT pg_backend_pid()

-- name: select_server_time
-- The server's clock.
-- Run by: maintenance, snapshot
-- In:  nothing
-- Out: now
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8

-- name: acquire_leader
-- Makes a process the leader of maintenance, if there is none. Uses the server's clock, even if tests have a fake one.
-- Run by: maintenance
-- In:  $1 process, $2 for how many seconds
-- Out: a row if it leads
INSERT INTO tampu.seat AS s (name, holder, until)
VALUES ('keeper', $1::text, clock_timestamp() + make_interval(secs => $2::float8))
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
WHERE s.holder = excluded.holder OR s.until < clock_timestamp()
RETURNING name

-- name: current_leader
-- The process that leads maintenance.
-- Run by: maintenance
-- In:  nothing
-- Out: the process, if there is one
SELECT holder FROM tampu.seat WHERE name = 'keeper' AND until >= clock_timestamp()

-- name: release_leader
-- Gives up the leadership of a process.
-- Run by: close
-- In:  $1 process
-- Out: nothing
DELETE FROM tampu.seat WHERE name = 'keeper' AND holder = $1::text

-- name: notify
-- Wakes other processes that wait for messages.
-- Run by: wake-up, inside a commit
-- In:  $1 channel, $2 sender
-- Out: nothing of use
SELECT pg_notify($1::text, $2::text)

-- name: notify_alone
-- Wakes other processes that wait for messages, without waiting for the disk.
-- Run by: wake-up, in a commit of its own
-- In:  $1 channel, $2 sender
-- Out: nothing of use
SELECT set_config('synchronous_commit', 'off', true), pg_notify($1::text, $2::text)

-- name: count_listeners
-- Counts the other sessions that may be listening. Sessions of other roles hide what they are, so they count too.
-- Run by: wake-up
-- In:  $1 the name that listening sessions have
-- Out: how many
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
  AND (application_name = $1::text OR application_name IS NULL)
