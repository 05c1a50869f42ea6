-- Out: the first offset that is still there or NULL, the offset given out last
SELECT (SELECT first FROM tampu.journal ORDER BY first LIMIT 1), n FROM tampu.journal_end
