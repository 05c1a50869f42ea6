-- regroup: groups have so many places and this pace from now on; who may go then, goes. Who waits for a token gets a new
-- time, except where groups keep order: there some wait for another reason, and nobody can tell who.
-- needs: base blocks runs journal moves
-- KEYS  1: tag of the queue
-- ARGV  1: now   2: how many places   3: cursor of HSCAN   4: about how many groups   5: pace   6: burst
-- Returns {woken, due, next cursor}
set_limits(tonumber(ARGV[2]), tonumber(ARGV[5]), tonumber(ARGV[6]))

local page = call('HSCAN', K .. 'lane', ARGV[3], 'COUNT', ARGV[4])
if #page[2] > 0 then guard() end
for i = 1, #page[2], 2 do
  retime(page[2][i], seats_of(page[2][i]))
  fill_lane(page[2][i], seats_of(page[2][i]))
end
finish()
return { woken, due, page[1] }
