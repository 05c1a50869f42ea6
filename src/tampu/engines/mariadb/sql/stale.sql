-- What the index in Redis may lack.
-- In:  $1 at most so many
-- Out: no, q, rank, pos; a row with q 0 stands for anything
SELECT no, q, place, pos FROM tampu_stale FORCE INDEX (PRIMARY) ORDER BY no LIMIT $1
