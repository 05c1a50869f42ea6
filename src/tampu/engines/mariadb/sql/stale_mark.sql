-- Something became ready that the index in Redis does not know. Not for ever, if nobody has an index any more.
INSERT INTO tampu_stale (q, place, pos)
SELECT 0, 0, 0 FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM tampu_stale LIMIT 10000, 1)
