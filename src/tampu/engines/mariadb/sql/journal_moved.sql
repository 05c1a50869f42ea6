-- Ends the numbering of records: they are not new any more, and the last offset is theirs.
-- In:  $1 the offset given out last before
-- Out: how many records were numbered
-- Exactly what was moved is removed: something that is older may have become visible in between.
DELETE w FROM tampu_journal j FORCE INDEX (PRIMARY)
STRAIGHT_JOIN tampu_journal_new w FORCE INDEX (PRIMARY) ON w.no = j.no AND w.part = j.part WHERE j.first > $1;
UPDATE tampu_journal_end SET n = $1 + (SELECT COALESCE(SUM(n), 0) FROM tampu_journal WHERE first > $1) WHERE one = 1;
SELECT COUNT(*) FROM tampu_journal WHERE first > $1
