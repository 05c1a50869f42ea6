-- adopt: what went wrong with attempts elsewhere, oldest first.
-- In:  columns: $1 seq, $2 at, $3 attempt, $4 outcome, $5 worker, $6 error, $7 traceback
INSERT INTO tampu_failure (seq, no, at, attempt, outcome, worker, error, traceback)
VALUES {($1, NEXTVAL(tampu_entry), $2, $3, $4, $5, $6, $7)}
