-- In:  $1 the time, arrays: $2 seq, $3 lease, $4 q, $5 attempts, $6 reason
INSERT INTO tampu.dead (seq, at, lease, q, attempts, reason)
SELECT seq, $1::int8, lease, q, attempts, reason
FROM unnest($2::int8[], $3::int8[], $4::int8[], $5::int8[], $6::bytea[]) AS i(seq, lease, q, attempts, reason)
