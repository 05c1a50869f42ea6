-- drop_reservation: forget a reservation that is not in use any more.
-- needs: base
-- KEYS  1: tag of the tenant
-- ARGV  1: now   2: kind .. name   3: token
-- Returns 1 if it was forgotten; 0 if somebody has reserved it anew
local raw = call('HGET', K .. 'names', ARGV[2])
if not raw or decode(raw)[3] ~= ARGV[3] then return 0 end
call('HDEL', K .. 'names', ARGV[2])
call('ZREM', K .. 'names.until', ARGV[2])
return 1
