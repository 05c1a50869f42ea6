-- In:  columns: $1 seq, $2 number of a failed attempt
-- Out: seq, its error
SELECT seq, error FROM tampu_failure FORCE INDEX (PRIMARY) WHERE {(seq = $1 AND no = $2) OR}
