-- In:  $1 q, $2 tokens that are left, $3 the time
UPDATE tampu_queue SET tokens = $2, tokens_at = $3 WHERE q = $1
