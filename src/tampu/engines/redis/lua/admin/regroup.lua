-- regroup: change the slots and the rate of groups; messages that may continue do. Those that wait for a token get a new
-- time, except where groups keep order: there some wait for another reason, and they can not be told apart.
-- needs: base blocks runs journal moves
-- KEYS  1: tag of the queue
-- ARGV  1: now   2: slots of a group   3: cursor of HSCAN   4: about how many groups   5: group rate   6: burst
-- Returns {woken, due, next cursor}
set_limits(tonumber(ARGV[2]), tonumber(ARGV[5]), tonumber(ARGV[6]))

local function retime(lane, seats)
  local spent, waits, others = spent_of(lane), {}, 0
  if spent == 0 or places_now() == 0 then return end
  for i = 1, #seats, 16 do
    local seq = sub(seats, i, i + 15)
    local x = place_of(seq)
    if x[1] == DELAYED and x[4] <= spent then
      waits[#waits + 1] = { seq, x }
    elseif x[1] ~= LEASED then
      others = others + 1
    end
  end
  table.sort(waits, function(a, b)
    if a[2][4] ~= b[2][4] then return a[2][4] < b[2][4] end
    return a[1] < b[1]
  end)
  if pace > 0 then call('ZADD', K .. 'pace', whole(math.min(spent, now + burst * pace)), lane) end
  for i, one in ipairs(waits) do
    enter_delayed(one[1], math.max(token(lane, others + i, now), now), one[2][2], one[2][3])
  end
end

local page = call('HSCAN', K .. 'lane', ARGV[3], 'COUNT', ARGV[4])
if #page[2] > 0 then guard() end
for i = 1, #page[2], 2 do
  retime(page[2][i], seats_of(page[2][i]))
  fill_lane(page[2][i], seats_of(page[2][i]))
end
finish()
return { woken, due, page[1] }
