-- In:  $1 tenant, $2 name
-- Out: the queue's number
SELECT q FROM tampu_queue WHERE tenant = $1 AND name = $2
