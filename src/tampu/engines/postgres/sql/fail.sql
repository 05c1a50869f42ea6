-- What went wrong with attempts, for the history of their messages.
-- In:  $1 the time, arrays: $2 seq, $3 attempt, $4 outcome, $5 worker, $6 error, $7 traceback
INSERT INTO tampu.failure (seq, at, attempt, outcome, worker, error, traceback)
SELECT seq, $1::int8, attempt, convert_from(outcome, 'UTF8'), worker, error, traceback
FROM unnest($2::int8[], $3::int8[], $4::bytea[], $5::bytea[], $6::bytea[], $7::bytea[])
  AS i(seq, attempt, outcome, worker, error, traceback)
