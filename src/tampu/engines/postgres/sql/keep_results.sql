-- In:  arrays: $1 seq, $2 until, $3 body
INSERT INTO tampu.result (seq, until, body) SELECT * FROM unnest($1::int8[], $2::int8[], $3::bytea[])
ON CONFLICT (seq) DO UPDATE SET until = excluded.until, body = excluded.body
