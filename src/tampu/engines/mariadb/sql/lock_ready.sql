-- In:  columns: $1 q, $2 rank, $3 pos
-- Out: seq of those that nobody else has locked; now we have
SELECT seq FROM tampu_ready FORCE INDEX (PRIMARY) WHERE {(q = $1 AND place = $2 AND pos = $3) OR} FOR UPDATE SKIP LOCKED
