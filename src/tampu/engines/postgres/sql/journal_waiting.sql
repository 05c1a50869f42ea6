-- Out: whether there are records without offsets
SELECT EXISTS (SELECT FROM tampu.journal_new)
