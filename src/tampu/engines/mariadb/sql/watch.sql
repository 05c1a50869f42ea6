-- Have the reaper look at leases at a time.
-- In:  columns: $1 until, $2 lease, $3 seqs (eight bytes each, or packed)
INSERT INTO tampu_claim (until, lease, seqs) VALUES {($1, $2, $3)}
ON DUPLICATE KEY UPDATE seqs = CONCAT(seqs, VALUES(seqs))
