-- In:  arrays: $1 q, $2 group, $3 its last turn
INSERT INTO tampu.fair (q, lane, last) SELECT * FROM unnest($1::int8[], $2::bytea[], $3::int8[])
ON CONFLICT (q, lane) DO UPDATE SET last = excluded.last
