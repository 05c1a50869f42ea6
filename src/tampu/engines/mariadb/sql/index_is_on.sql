-- Out: whether somebody has an index in Redis
SELECT EXISTS (SELECT 1 FROM tampu_meta WHERE name = 'index')
