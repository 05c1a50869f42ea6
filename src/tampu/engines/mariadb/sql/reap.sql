-- In:  $1 seqs of leases that the caller has locked
DELETE FROM tampu_leased WHERE seq IN ($1) LIMIT #1
