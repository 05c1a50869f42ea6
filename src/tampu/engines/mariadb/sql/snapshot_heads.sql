-- What does not change of messages, but for their bodies; column by column, for a row of each would take the driver ten
-- times as long.
-- In:  $1 first and $2 last seq, $3 at most so many messages, $4 a number that stands for NULL
-- Out: with commas between: seqs, created, max_attempts, expires, ahead, sizes of the bodies;
--      and one after the other: whether it has an id of its own (0 or 1), those ids
SET STATEMENT group_concat_max_len = 1073741824 FOR
SELECT GROUP_CONCAT(seq), GROUP_CONCAT(created), GROUP_CONCAT(max_attempts), GROUP_CONCAT(COALESCE(expires, $4)),
  GROUP_CONCAT(COALESCE(ahead, $4)), GROUP_CONCAT(size), GROUP_CONCAT(id IS NOT NULL SEPARATOR ''),
  GROUP_CONCAT(id SEPARATOR '')
FROM (SELECT seq, created, max_attempts, expires, ahead, id, LENGTH(body) AS size
  FROM tampu_message FORCE INDEX (PRIMARY) WHERE seq BETWEEN $1 AND $2 ORDER BY seq LIMIT $3) AS m
