-- One reader at a time gives offsets; the statement after this sees all that those before have done.
-- Out: the offset given out last
SELECT n FROM tampu_journal_end WHERE one = 1 FOR UPDATE
