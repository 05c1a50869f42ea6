-- In:  $1 tenant, $2 name
-- Out: the queue's number
SELECT q FROM tampu.queue WHERE tenant = $1::text AND name = $2::text
