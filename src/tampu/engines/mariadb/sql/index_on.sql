-- From now on whoever opens the tables knows that there is an index in Redis.
INSERT IGNORE INTO tampu_meta VALUES ('index', 'redis')
