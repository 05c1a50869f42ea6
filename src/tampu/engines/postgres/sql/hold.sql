-- In:  arrays: $1 seq, $2 run_at, $3 q, $4 attempts, $5 lane, $6 reason
INSERT INTO tampu.held (seq, run_at, q, attempts, lane, reason)
SELECT * FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::int8[], $5::bytea[], $6::bytea[])
