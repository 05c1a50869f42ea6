-- Out: whether we sweep; only one does at a time, the others need not wait for it
-- Until `swept`, nobody is waited for but for a second, the least there is besides nothing: what is locked was asked for
-- with SKIP LOCKED, this is for what was overlooked.
SET SESSION innodb_lock_wait_timeout = 1;
SELECT COUNT(*) FROM (SELECT n FROM tampu_latch WHERE n = 0 FOR UPDATE SKIP LOCKED) AS free
