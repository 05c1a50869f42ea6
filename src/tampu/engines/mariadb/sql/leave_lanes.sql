-- In:  $1 q, columns: $2 lane, $3 seq that had a place
DELETE FROM tampu_lane WHERE {(q = $1 AND lane = $2 AND seq = $3) OR} LIMIT #3
