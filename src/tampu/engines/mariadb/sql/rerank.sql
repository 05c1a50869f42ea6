-- In:  columns: $1 seq, $2 rank
UPDATE tampu_message FORCE INDEX (PRIMARY) SET place = ELT(FIELD(seq, $1), $2) WHERE seq IN ($1)
