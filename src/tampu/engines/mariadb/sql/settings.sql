-- How our own sessions are: what the statements here are written for.
-- In:  $1 seconds to wait for a lock, $2 seconds that the server may keep an idle connection
SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', innodb_lock_wait_timeout = $1, wait_timeout = $2,
  in_predicate_conversion_threshold = 0, optimizer_use_condition_selectivity = 1
