-- In:  $1 q, $2 tokens that are left, $3 the time
UPDATE tampu.queue SET tokens = $2::float8, tokens_at = $3::int8 WHERE q = $1::int8
