-- In:  $1 tenant, $2 name
-- Out: the queue's number, whoever made it
INSERT INTO tampu_queue (tenant, name) VALUES ($1, $2) ON DUPLICATE KEY UPDATE q = q RETURNING q
