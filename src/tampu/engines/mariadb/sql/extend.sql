-- In:  $1 until, $2 seqs of leases that the caller has locked
UPDATE tampu_leased FORCE INDEX (PRIMARY) SET until = $1 WHERE seq IN ($2)
