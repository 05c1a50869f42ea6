-- In:  $1 seqs of leases that the caller has locked
DELETE FROM tampu.leased WHERE seq = ANY ($1::int8[])
