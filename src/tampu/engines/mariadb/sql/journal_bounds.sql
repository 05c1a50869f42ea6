-- Out: the first offset that is still there or NULL, the offset given out last
SELECT (SELECT MIN(first) FROM tampu_journal), n FROM tampu_journal_end WHERE one = 1
