-- sweep: claims to look at, locked. Others pass over them.
-- In:  $1 the time, $2 at most so many
-- Out: until, lease, seqs
SELECT until, lease, seqs FROM tampu_claim FORCE INDEX (PRIMARY) WHERE until <= $1 ORDER BY until, lease LIMIT $2
FOR UPDATE SKIP LOCKED
