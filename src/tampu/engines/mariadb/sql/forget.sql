-- Messages that are in no index any more are removed, with their history and result.
-- In:  $1 seqs
DELETE FROM tampu_failure WHERE seq IN ($1);
DELETE FROM tampu_result WHERE seq IN ($1) LIMIT #1;
DELETE i FROM tampu_message m FORCE INDEX (PRIMARY)
STRAIGHT_JOIN tampu_own_id i FORCE INDEX (PRIMARY) ON i.id = m.id AND i.seq = m.seq WHERE m.seq IN ($1);
DELETE FROM tampu_message WHERE seq IN ($1) LIMIT #1
