-- In:  arrays: $1 rank, $2 pos, $3 seq, $4 lease, $5 q, $6 attempts
INSERT INTO tampu.ready (rank, pos, seq, lease, q, attempts)
SELECT * FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::int8[], $5::int8[], $6::int8[])
