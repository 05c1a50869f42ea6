-- In:  $1 q
-- Out: tokens, tokens_at. The caller has the queue's lock.
SELECT tokens, tokens_at FROM tampu.queue WHERE q = $1::int8
