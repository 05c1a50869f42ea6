-- identity: what tells this house from any other, made when it is first asked for.
-- needs: base
-- KEYS  1: tag of the house
-- ARGV  1: now   2: a fresh name
-- Returns its name
-- `n`: house
call('HSETNX', K .. 'n', 'house', ARGV[2])
return call('HGET', K .. 'n', 'house')
