-- acquire_leader: make the process the leader if there is none, or renew its leadership.
-- needs: base
-- KEYS  1: tag of the store
-- ARGV  1: now   2: token of the process   3: milliseconds it leads; 0 to resign
-- Returns 1 if it leads, else 0
local holder = call('GET', K .. 'lead')
if holder and holder ~= ARGV[2] then return 0 end
if ARGV[3] == '0' then
  if holder then call('DEL', K .. 'lead') end
  return 0
end
call('SET', K .. 'lead', ARGV[2], 'PX', ARGV[3])
return 1
