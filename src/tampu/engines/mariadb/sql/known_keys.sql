-- The waiting messages that have these keys, locked: a claim that takes one meets us here.
-- In:  $1 q, $2 keys
-- Out: key, seq
SELECT word, seq FROM tampu_key FORCE INDEX (PRIMARY) WHERE (q, word) IN ({($1, $2)}) FOR UPDATE
