-- In:  $1 seqs of rows that the caller has locked
DELETE FROM tampu.delayed WHERE seq = ANY ($1::int8[])
