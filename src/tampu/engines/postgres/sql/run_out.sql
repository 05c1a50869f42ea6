-- sweep: claims to look at, locked. Others pass over them.
-- In:  $1 the time, $2 at most so many
-- Out: until, lease, seqs
SELECT until, lease, seqs FROM tampu.claim WHERE until <= $1::int8 ORDER BY until, lease LIMIT $2::int8
FOR UPDATE SKIP LOCKED
