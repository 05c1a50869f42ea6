-- In:  $1 tenant, $2 queue
-- Out: how many messages are ready; 0 for a queue that does not exist
SELECT coalesce(sum(y.n), 0)::int8 FROM tampu.tally y
WHERE y.q = (SELECT u.q FROM tampu.queue u WHERE u.tenant = $1::text AND u.name = $2::text) AND y.kind = 0
