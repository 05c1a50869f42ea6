-- In:  $1 tenant, $2 name
-- Out: the queue's number, whoever made it
INSERT INTO tampu.queue (tenant, name) VALUES ($1::text, $2::text)
ON CONFLICT (tenant, name) DO UPDATE SET name = excluded.name RETURNING q
