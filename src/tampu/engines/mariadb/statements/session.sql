-- Statements of a session: its settings, the server's time, who leads maintenance, and wake-ups.

-- name: configure_session
-- Sets what our statements rely on.
-- Run by: connect
-- In:  $1 seconds to wait for a lock, $2 seconds that the server may keep an idle connection
-- Out: nothing
SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', innodb_lock_wait_timeout = $1, wait_timeout = $2,
  in_predicate_conversion_threshold = 0, optimizer_use_condition_selectivity = 1

-- name: select_durability
-- The server's settings for durability, and its packet limit.
-- Run by: connect, checks
-- In:  nothing
-- Out: when the log goes to disk, whether there is a binary log, how often that goes to disk, most bytes of a packet
SELECT @@GLOBAL.innodb_flush_log_at_trx_commit, @@GLOBAL.log_bin, @@GLOBAL.sync_binlog, @@max_allowed_packet

-- name: select_server_time
-- The server's clock.
-- Run by: maintenance, snapshot
-- In:  nothing
-- Out: now
SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))

-- name: acquire_leader
-- Makes a process the leader of maintenance, if there is none. Uses the server's clock, even if tests have a fake one.
-- Assignments run one after the other: the second sees the holder that the first has set.
-- Run by: maintenance
-- In:  $1 process, $2 for how many seconds
-- Out: a row if it leads
INSERT INTO tampu_seat (name, holder, until)
VALUES ('keeper', $1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + CAST($2 * 1000000 AS SIGNED))
ON DUPLICATE KEY UPDATE
  holder = IF(until < TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), VALUES(holder), holder),
  until = IF(holder = VALUES(holder), VALUES(until), until);
SELECT name FROM tampu_seat WHERE name = 'keeper' AND holder = $1

-- name: current_leader
-- The process that leads maintenance.
-- Run by: maintenance
-- In:  nothing
-- Out: the process, if there is one
SELECT holder FROM tampu_seat WHERE name = 'keeper'
  AND until >= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))

-- name: release_leader
-- Gives up the leadership of a process.
-- Run by: close
-- In:  $1 process
-- Out: nothing
DELETE FROM tampu_seat WHERE name = 'keeper' AND holder = $1

-- name: poll_changes
-- Numbers that change with nearly every commit that writes to the journal. A missed wake-up does no harm.
-- Run by: wake-up
-- In:  nothing
-- Out: two numbers
SELECT COALESCE((SELECT no FROM tampu_journal_new FORCE INDEX (PRIMARY) ORDER BY no DESC, part DESC LIMIT 1), 0),
  (SELECT n FROM tampu_journal_end WHERE one = 1)
