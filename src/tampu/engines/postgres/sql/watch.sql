-- Have the reaper look at leases at a time.
-- In:  arrays: $1 until, $2 lease, $3 seqs (eight bytes each)
INSERT INTO tampu.claim (until, lease, seqs) SELECT * FROM unnest($1::int8[], $2::int8[], $3::bytea[])
ON CONFLICT (until, lease) DO UPDATE SET seqs = tampu.claim.seqs || excluded.seqs
