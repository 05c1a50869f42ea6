-- Out: whether the index in Redis may lack something
SELECT EXISTS (SELECT 1 FROM tampu_stale)
