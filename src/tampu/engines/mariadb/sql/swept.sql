-- After `sweeping` and what it was for: the rest of the commit may wait for locks again.
-- In:  $1 seconds to wait for a lock
SET SESSION innodb_lock_wait_timeout = $1
