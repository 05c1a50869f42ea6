-- In:  $1 seqs of leases: their workers are asked to stop
UPDATE tampu_leased FORCE INDEX (PRIMARY) SET cancel = TRUE WHERE seq IN ($1)
