-- regroup: groups have so many places and this pace from now on; who may go then, goes. Who waits for a token gets a new
-- time, except where groups keep order: there some wait for another reason, and nobody can tell who.
-- needs: base blocks runs journal moves
-- KEYS  1: tag of the queue
-- ARGV  1: now   2: how many places   3: cursor of HSCAN   4: about how many groups   5: pace   6: burst
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
