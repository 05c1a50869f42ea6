-- In:  $1 q, $2 state number, $3 no, $4 the seqs that are left
UPDATE tampu_ending SET seqs = $4 WHERE q = $1 AND state = $2 AND no = $3
