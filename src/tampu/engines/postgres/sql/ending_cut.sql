-- In:  $1 q, $2 state number, $3 no, $4 the seqs that are left
UPDATE tampu.ending SET seqs = $4::bytea WHERE q = $1::int8 AND state = $2::int8 AND no = $3::int8
