-- In:  arrays: $1 seq, $2 when it is to run now
UPDATE tampu.delayed d SET run_at = i.run_at FROM unnest($1::int8[], $2::int8[]) AS i(seq, run_at) WHERE d.seq = i.seq
