-- Counts added up, so that stats add few rows.
-- In:  $1 no of the rows that were added up; the sums: $2 q, $3 state number, $4 change
DELETE FROM tampu_tally WHERE no IN ($1) LIMIT #1;
INSERT INTO tampu_tally (q, kind, n) VALUES {($2, $3, $4)}
