-- In:  $1 the time, arrays: $2 seq, $3 lease, $4 q, $5 attempts, $6 state
INSERT INTO tampu.ended (seq, at, lease, q, attempts, state)
SELECT seq, $1::int8, lease, q, attempts, state
FROM unnest($2::int8[], $3::int8[], $4::int8[], $5::int8[], $6::int8[]) AS i(seq, lease, q, attempts, state)
