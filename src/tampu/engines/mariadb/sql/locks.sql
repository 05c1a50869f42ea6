-- What a batch is about to look at, locked until its end, in one order for all (that of the primary key). Looking is
-- another statement: its snapshot must be newer than the locks.
-- In:  $1 latches
SELECT n FROM tampu_latch FORCE INDEX (PRIMARY) WHERE n IN ($1) ORDER BY n FOR UPDATE
