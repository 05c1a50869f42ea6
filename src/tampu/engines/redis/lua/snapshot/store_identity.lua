-- store_identity: the name that tells this store from any other, made when it is first asked for.
-- needs: base
-- KEYS  1: tag of the store
-- ARGV  1: now   2: a fresh name
-- Returns the name
-- `n`: house
call('HSETNX', K .. 'n', 'house', ARGV[2])
return call('HGET', K .. 'n', 'house')
