-- trim: does a reader lack something of an entry?
-- In:  $1 nos, $2 the offset that all readers have
-- Out: those of which something comes after it
SELECT DISTINCT no FROM tampu_journal FORCE INDEX (entry) WHERE no IN ($1) AND first + n - 1 > $2;
SELECT DISTINCT no FROM tampu_journal_new FORCE INDEX (PRIMARY) WHERE no IN ($1)
