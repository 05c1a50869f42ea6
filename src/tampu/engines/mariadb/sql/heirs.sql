-- In:  $1 q, $2 lane, $3 at most so many
-- Out: seq of those who wait for a place of the group, in publish order
SELECT seq FROM tampu_held FORCE INDEX (of_lane) WHERE q = $1 AND lane = $2 ORDER BY seq LIMIT $3
