-- In:  $1 q
-- Out: tokens, tokens_at. The caller has the queue's lock.
SELECT tokens, tokens_at FROM tampu_queue WHERE q = $1
