-- Out: whether there are records without offsets
SELECT EXISTS (SELECT 1 FROM tampu_journal_new)
