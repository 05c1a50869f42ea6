-- lead: take the keeper's seat if it is free, or stay on it.
-- needs: base
-- KEYS  1: tag of the house
-- ARGV  1: now   2: token of the process   3: milliseconds until the seat is free again; 0 gives it up
-- Returns 1 while the seat is ours
local holder = call('GET', K .. 'lead')
if holder and holder ~= ARGV[2] then return 0 end
if ARGV[3] == '0' then
  if holder then call('DEL', K .. 'lead') end
  return 0
end
call('SET', K .. 'lead', ARGV[2], 'PX', ARGV[3])
return 1
