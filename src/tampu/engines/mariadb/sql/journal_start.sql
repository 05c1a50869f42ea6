-- The journal goes on after an offset.
-- In:  $1 the offset
UPDATE tampu_journal_end SET n = $1 WHERE one = 1
