-- In:  arrays: $1 seq, $2 run_at, $3 lease, $4 q, $5 attempts
INSERT INTO tampu.delayed (seq, run_at, lease, q, attempts)
SELECT * FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::int8[], $5::int8[])
