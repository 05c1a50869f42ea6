-- replay: an expiry that has passed meanwhile does not count any more.
-- In:  $1 seqs, $2 the time
UPDATE tampu_message FORCE INDEX (PRIMARY) SET expires = NULL WHERE seq IN ($1) AND expires <= $2
