-- replay: messages may be tried so many times from now on.
-- In:  $1 seqs, $2 max_attempts
UPDATE tampu_message FORCE INDEX (PRIMARY) SET max_attempts = $2 WHERE seq IN ($1) AND max_attempts <> $2
