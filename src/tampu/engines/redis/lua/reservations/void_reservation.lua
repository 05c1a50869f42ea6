-- void_reservation: whether a name is in use in this queue. If not, its reservation becomes void: a call that comes late
-- with its token is refused.
-- needs: base
-- KEYS  1: tag of the queue
-- ARGV  1: now   2: o (own id) or s (id prefix)   3: name   4: token
--       5: how long to remember that it is void
-- Returns 1 if it is in use, else 0
-- `void`: kind .. name -> token; by time in `void.until`.
local kind, name = ARGV[2], ARGV[3]
if call('HEXISTS', K .. (kind == 'o' and 'own' or 'stems'), name) == 1 then return 1 end
call('HSET', K .. 'void', kind .. name, ARGV[4])
call('ZADD', K .. 'void.until', now + tonumber(ARGV[5]), kind .. name)
return 0
