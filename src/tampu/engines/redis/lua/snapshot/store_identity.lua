-- store_identity: the unique name of this store, created on first use.
-- needs: base
-- KEYS  1: tag of the store
-- ARGV  1: now   2: a new name
-- Returns the name
-- `n`, field house: the name
call('HSETNX', K .. 'n', 'house', ARGV[2])
return call('HGET', K .. 'n', 'house')
