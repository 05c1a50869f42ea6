-- In:  columns: $1 seq, $2 body
UPDATE tampu_message FORCE INDEX (PRIMARY) SET body = ELT(FIELD(seq, $1), $2) WHERE seq IN ($1)
