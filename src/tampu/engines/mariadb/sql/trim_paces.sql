-- In:  $1 the time, $2 at most so many
-- Out: q, lane of groups that have saved up all their tokens, locked
SELECT q, lane FROM tampu_pace FORCE INDEX (spent) WHERE spent <= $1 ORDER BY spent LIMIT $2 FOR UPDATE SKIP LOCKED
