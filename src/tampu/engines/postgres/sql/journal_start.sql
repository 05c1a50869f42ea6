-- The journal goes on after an offset, if it is empty. The caller has its lock.
-- In:  $1 the offset
-- Out: a row if it was empty
UPDATE tampu.journal_end SET n = $1::int8 WHERE n = 0 AND NOT EXISTS (SELECT 1 FROM tampu.journal_new) RETURNING n
