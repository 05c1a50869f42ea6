-- settle: if these were the whole claim, nobody needs to look at it any more.
-- In:  $1 lease, $2 the claim's until, $3 the seqs, packed
DELETE FROM tampu_claim WHERE until = $2 AND lease = $1 AND seqs = $3 LIMIT 1
