-- In:  $1 a time
-- Out: the last offset of the last record that is older
SELECT first + n - 1 FROM tampu_journal FORCE INDEX (PRIMARY) WHERE at < $1 ORDER BY first DESC LIMIT 1
