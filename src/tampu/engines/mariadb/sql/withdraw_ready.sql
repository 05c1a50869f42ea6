-- Takes messages out of `ready`. Waits for a claim that is taking one.
-- In:  columns: $1 q, $2 rank, $3 pos
-- Out: seq, attempts, rank, pos, lease
DELETE FROM tampu_ready WHERE {(q = $1 AND place = $2 AND pos = $3) OR} LIMIT #1
RETURNING seq, attempts, place, pos, lease
