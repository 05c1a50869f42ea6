-- In:  $1 q, $2 rank, $3 pos to go on after, $4 at most so many
-- Out: q, rank, pos of ready messages of all queues, in the order of the primary key
SELECT q, place, pos FROM tampu_ready FORCE INDEX (PRIMARY)
WHERE q > $1 OR (q = $1 AND (place > $2 OR (place = $2 AND pos > $3))) ORDER BY q, place, pos LIMIT $4
