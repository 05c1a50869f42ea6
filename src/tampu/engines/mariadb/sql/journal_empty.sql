-- Out: whether nothing was ever told. The caller has the journal's lock.
SELECT n = 0 AND NOT EXISTS (SELECT 1 FROM tampu_journal_new) FROM tampu_journal_end WHERE one = 1
