-- In:  $1 a time
-- Out: first of the first record that is not older
SELECT first FROM tampu.journal WHERE at >= $1::int8 ORDER BY first LIMIT 1
