-- adopt: what went wrong with attempts elsewhere, oldest first.
-- In:  arrays: $1 seq, $2 at, $3 attempt, $4 outcome, $5 worker, $6 error, $7 traceback
INSERT INTO tampu.failure (seq, at, attempt, outcome, worker, error, traceback)
SELECT seq, at, attempt, convert_from(outcome, 'UTF8'), worker, error, traceback
FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::bytea[], $5::bytea[], $6::bytea[], $7::bytea[])
  AS i(seq, at, attempt, outcome, worker, error, traceback)
