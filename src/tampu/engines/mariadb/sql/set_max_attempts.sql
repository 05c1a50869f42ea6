-- In:  columns: $1 seq, $2 max_attempts
UPDATE tampu_message FORCE INDEX (PRIMARY) SET max_attempts = ELT(FIELD(seq, $1), $2) WHERE seq IN ($1)
