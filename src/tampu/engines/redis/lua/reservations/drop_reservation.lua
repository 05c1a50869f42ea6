-- drop_reservation: remove a reservation that is no longer in use.
-- needs: base
-- KEYS  1: tag of the tenant
-- ARGV  1: now   2: kind .. name   3: token
-- Returns 1 if it was removed; 0 if it was reserved again meanwhile
local raw = call('HGET', K .. 'names', ARGV[2])
if not raw or decode(raw)[3] ~= ARGV[3] then return 0 end
call('HDEL', K .. 'names', ARGV[2])
call('ZREM', K .. 'names.until', ARGV[2])
return 1
