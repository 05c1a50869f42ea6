-- Out: the offset given out last
SELECT n FROM tampu.journal_end
