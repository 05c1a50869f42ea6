-- In:  $1 a time
-- Out: first of the first record that is not older
SELECT first FROM tampu_journal FORCE INDEX (PRIMARY) WHERE at >= $1 ORDER BY first LIMIT 1
