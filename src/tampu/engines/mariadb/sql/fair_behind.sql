-- Groups that stand behind the round that is being delivered. The caller has the queue's lock.
-- In:  $1 q, $2 the round, $3 at most so many
-- Out: group
SELECT lane FROM tampu_fair FORCE INDEX (of_queue) WHERE q = $1 AND last < $2 ORDER BY last LIMIT $3
