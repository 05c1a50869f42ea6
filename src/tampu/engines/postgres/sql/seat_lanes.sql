-- In:  arrays: $1 q, $2 lane, $3 seq whose turn it is now
INSERT INTO tampu.lane (q, lane, seq) SELECT * FROM unnest($1::int8[], $2::bytea[], $3::int8[])
