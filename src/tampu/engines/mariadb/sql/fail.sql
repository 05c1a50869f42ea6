-- What went wrong with attempts, for the history of their messages.
-- In:  $1 the time, columns: $2 seq, $3 attempt, $4 outcome, $5 worker, $6 error, $7 traceback
INSERT INTO tampu_failure (seq, no, at, attempt, outcome, worker, error, traceback)
VALUES {($2, NEXTVAL(tampu_entry), $1, $3, $4, $5, $6, $7)}
