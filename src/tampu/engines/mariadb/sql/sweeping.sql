-- Out: whether we sweep; only one does at a time, the others need not wait for it
SELECT COUNT(*) FROM (SELECT n FROM tampu_latch WHERE n = 0 FOR UPDATE SKIP LOCKED) AS free
