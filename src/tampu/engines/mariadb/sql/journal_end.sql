-- Out: the offset given out last
SELECT n FROM tampu_journal_end WHERE one = 1
