-- The number of this commit's entry in the journal is drawn now: whatever it has seen of others was numbered before.
-- In:  $1 the time, $2 how many, $3 q, $4 body of the first record
INSERT INTO tampu_journal_new (no, part, n, at, q, body) VALUES (NEXTVAL(tampu_entry), 1, $2, $1, $3, $4)
