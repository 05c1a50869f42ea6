-- More records of the entry that `tell` began.
-- In:  $1 the time, columns: $2 place in the entry, $3 how many, $4 q, $5 body
INSERT INTO tampu_journal_new (no, part, n, at, q, body) VALUES {(LASTVAL(tampu_entry), $2, $3, $1, $4, $5)}
