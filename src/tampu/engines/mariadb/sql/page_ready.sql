-- In:  $1 q, $2 rank, $3 pos to go on after, $4 at most so many
-- Out: seq, rank, pos in the order of delivery
SELECT seq, place, pos FROM tampu_ready FORCE INDEX (PRIMARY)
WHERE q = $1 AND (place > $2 OR (place = $2 AND pos > $3)) ORDER BY place, pos LIMIT $4
