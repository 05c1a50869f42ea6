-- Bodies one after the other; a row for each would take the driver ten times as long.
-- In:  $1 first and $2 last seq
-- Out: seqs, bodies, in the same order
SET STATEMENT group_concat_max_len = 1073741824 FOR
SELECT GROUP_CONCAT(seq), GROUP_CONCAT(body SEPARATOR '') FROM tampu_message FORCE INDEX (PRIMARY)
WHERE seq BETWEEN $1 AND $2
