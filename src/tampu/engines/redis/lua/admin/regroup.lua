-- regroup: change the slots and the rate of groups, and release messages that may now start. Those that wait for a token
-- get a new time, except where groups keep order: there some wait for another reason and cannot be distinguished.
-- needs: base blocks runs journal moves
-- KEYS  1: tag of the queue
-- ARGV  1: now   2: slots of a group   3: cursor of HSCAN   4: about how many groups   5: group rate   6: burst
-- Returns {newly_ready, due, next cursor}
set_limits(tonumber(ARGV[2]), tonumber(ARGV[5]), tonumber(ARGV[6]))

local page = call('HSCAN', K .. 'lane', ARGV[3], 'COUNT', ARGV[4])
if #page[2] > 0 then guard() end
for i = 1, #page[2], 2 do
  retime(page[2][i], holders_of(page[2][i]))
  fill_group(page[2][i], holders_of(page[2][i]))
end
finish()
return { newly_ready, due, page[1] }
