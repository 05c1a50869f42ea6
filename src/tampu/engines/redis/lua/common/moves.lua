-- How a message moves between the indexes. Its state is the index it is in.
-- `m`, in blocks: seq -> [rank, flags, created, max_attempts, extra, body]; rank and flags stand at fixed places.
-- `x`, in blocks: seq -> [state, attempts, trace, at, …]; a message that was published ready and never moved has none.
-- ready: members rank .. pos .. seq (rank .. seq where pos is seq) and runs, all of one score. held: members seq.
-- leased (by its end), delayed, expiry, done, dead, cancelled, expired: by time. aged: the ready ones that are not first by number.
-- `own`: own id -> seq. `stems`: beginning of own ids -> how many messages have it.
-- key: key -> seq of who waits with it. lane: group -> seqs that have a place, in a row; lanes: who waits for one, hash .. seq.
-- `n`, field places: how many a group has; none or 0: one, which is kept through retries. Fields pace and burst: a token
-- every so many microseconds, and how many are saved up. pace: group -> when all that it has spent is saved up again.
local READY, DELAYED, LEASED, HELD, DONE, DEAD, CANCELLED, EXPIRED = 0, 1, 2, 3, 4, 5, 6, 7
local INDEX = { [0] = 'ready', 'delayed', 'leased', 'held', 'done', 'dead', 'cancelled', 'expired' }

local function rank_of(row) return row:sub(3, 18) end
local function flags_of(row) return row:byte(19) end -- 1: key or expiry, 2: lane, 4: own id, 8: priority and such

local function details(row) -- created, max_attempts, extra
  local _, created, most, extra = cmsgpack.unpack_limit(row, 3, 19)
  return created, most, extra
end

local function with_head(rank, flags, created, most, extra, body)
  return '\150\176' .. rank .. string.char(flags) .. encode(created, most, extra) .. body
end

local function body_of(row) -- the packed body, as it came
  local offset = cmsgpack.unpack_limit(row, 3, 19)
  return row:sub(offset + 1)
end

local function extra_of(row)
  if flags_of(row) == 0 then return {} end
  local _, _, extra = details(row)
  return extra
end

local function place_of(seq)
  local raw = raw_place(seq)
  return raw and decode(raw) or { READY, 0, '', false }
end

local function put(seq, ...) put_place(seq, { ... }) end

-- Turns of groups in a fair queue; tampu/engines/fair_ranks.py tells how they are given. fair: group -> its last turn.
local FORGOTTEN = 2 -- groups that are forgotten for each that is noted, if there are so many behind the round
local round

local function round_now()
  if not round then
    local first = call('ZRANGE', K .. 'ready', 0, 0)[1]
    if first then
      round = (tonumber(sub(first, 1, 8), 16) - 2147483648) * 4294967296 + tonumber(sub(first, 9, 16), 16)
    else
      round = (tonumber(call('ZREVRANGE', K .. 'fair', 0, 0, 'WITHSCORES')[2]) or 0) + 1
    end
    round = math.max(1, round)
  end
  return round
end

local function turn_of(seq) -- as a rank
  local p = extra_of(row_of(seq)).p
  local group = p and p[3] or ''
  local turn = math.max(round_now(), (tonumber(call('ZSCORE', K .. 'fair', group)) or 0) + 1)
  local behind = call('ZRANGEBYSCORE', K .. 'fair', '-inf', '(' .. whole(round), 'LIMIT', 0, FORGOTTEN)
  if #behind > 0 then call('ZREM', K .. 'fair', unpack(behind)) end
  call('ZADD', K .. 'fair', whole(turn), group)
  return format('%08x%08x', 2147483648 + math.floor(turn / 4294967296), turn % 4294967296)
end

local function enter_ready(seq, rank, attempts, trace) -- at the back of its rank
  local pos = number()
  if rank == FAIR then pos = turn_of(seq) .. pos end
  call('ZADD', K .. 'ready', 0, member_of(seq, rank, pos))
  call('ZADD', K .. 'aged', 0, seq)
  put(seq, READY, attempts, trace, pos)
  woken = woken + 1
  return READY
end

local function enter_delayed(seq, run_at, attempts, trace)
  call('ZADD', K .. 'delayed', run_at, seq)
  put(seq, DELAYED, attempts, trace, run_at)
  falls_due(run_at)
  return DELAYED
end

local function start(seq, rank, run_at, attempts)
  if run_at and run_at > now then return enter_delayed(seq, run_at, attempts, '') end
  return enter_ready(seq, rank, attempts, '')
end

local function hold(seq, attempts, run_at, reason, lane)
  call('ZADD', K .. 'held', 0, seq)
  put(seq, HELD, attempts, '', run_at or false, reason, lane and 1 or 0)
  if lane then call('ZADD', K .. 'lanes', 0, redis.sha1hex(lane) .. seq) end
  return HELD
end

local function lane_of(row) return flags_of(row) % 4 >= 2 and extra_of(row).l or nil end

local MOST_FREED = 100 -- messages of a group that one leaving lets go; more only after a limit was raised
local ANY = 1073741824 -- places; so many that nobody waits for one
local places, pace, burst

local function places_now()
  if not places then
    local kept = call('HMGET', K .. 'n', 'places', 'pace', 'burst')
    places, pace, burst = tonumber(kept[1] or 0), tonumber(kept[2] or 0), tonumber(kept[3] or 0)
  end
  return places
end

local function set_limits(new_places, new_pace, new_burst)
  if places_now() ~= new_places or pace ~= new_pace or burst ~= new_burst then
    call('HSET', K .. 'n', 'places', new_places, 'pace', whole(new_pace), 'burst', new_burst)
  end
  places, pace, burst = new_places, new_pace, new_burst
end

local function seats_of(lane) return call('HGET', K .. 'lane', lane) or '' end

local function keep_seats(lane, seats)
  if seats == '' then call('HDEL', K .. 'lane', lane) else call('HSET', K .. 'lane', lane, seats) end
end

local function seat_in(seats, seq) -- where it begins
  for i = 1, #seats, 16 do
    if sub(seats, i, i + 15) == seq then return i end
  end
end

local function without(seats, seq)
  local i = seat_in(seats, seq)
  return i and sub(seats, 1, i - 1) .. sub(seats, i + 16) or seats
end

-- How many more may go, and how many have places and were not claimed yet (only known where there is a pace).
local function vacant(seats)
  local room, waiting = math.max(places_now(), 1) - #seats / 16, 0
  if pace > 0 then
    for i = 1, #seats, 16 do
      if not call('ZSCORE', K .. 'leased', sub(seats, i, i + 15)) then waiting = waiting + 1 end
    end
    room = math.min(room, burst - waiting)
  end
  return room, waiting
end

local function spent_of(lane) -- by a clock that was ahead, as if all were spent now; only where there is a pace
  return math.min(tonumber(call('ZSCORE', K .. 'pace', lane) or 0), now + burst * pace)
end

local function token(lane, place, run_at) -- when the so many-th that waits for a token may go; not before run_at
  if pace == 0 then return run_at end
  return math.max(math.max(spent_of(lane), now) - (burst - place) * pace, run_at or 0)
end

-- The pace has changed, or the clock: who waits for a token gets a new time. Where groups keep order some wait for another
-- reason, and nobody can tell who: they stay as they are.
local function retime(lane, seats)
  local spent, waits, others = tonumber(call('ZSCORE', K .. 'pace', lane) or 0), {}, 0
  if spent == 0 then return end
  if places_now() and pace > 0 then call('ZADD', K .. 'pace', whole(spent_of(lane)), lane) end
  if places == 0 then return end
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
  for i, one in ipairs(waits) do
    enter_delayed(one[1], math.max(token(lane, others + i, now), now), one[2][2], one[2][3])
  end
end

local function seat(seq, lane) -- the how many-th that was not claimed yet it is; nothing when all places are taken
  local seats = seats_of(lane)
  local room, waiting = vacant(seats)
  if room <= 0 then return end
  keep_seats(lane, seats .. seq)
  return waiting + 1
end

-- Is it its turn, and when may it go? Who waits for its time needs no place, unless order is kept.
local function take_place(seq, run_at, lane)
  if not lane or (places_now() > 0 and run_at and run_at > now) then return true, run_at end
  local place = seat(seq, lane)
  if not place then return false, run_at end
  return true, token(lane, place, run_at)
end

local function admit(seq, rank, run_at, attempts, lane) -- or wait for a place of its group
  local may, at = take_place(seq, run_at, lane)
  if not may then return hold(seq, attempts, run_at, 'group', lane) end
  return start(seq, rank, at, attempts)
end

local function fill_lane(lane, seats) -- the next of the group move on
  local room, waiting = vacant(seats)
  room = math.min(room, MOST_FREED)
  local heirs, mark = {}, redis.sha1hex(lane)
  if room > 0 then heirs = call('ZRANGEBYLEX', K .. 'lanes', '[' .. mark, '[' .. mark .. '~', 'LIMIT', 0, room) end
  for i, heir in ipairs(heirs) do
    call('ZREM', K .. 'lanes', heir)
    heirs[i] = heir:sub(41)
  end
  keep_seats(lane, seats .. table.concat(heirs))
  for i, heir in ipairs(heirs) do
    call('ZREM', K .. 'held', heir)
    local x = place_of(heir)
    note('free', start(heir, rank_of(row_of(heir)), token(lane, waiting + i, x[4]), x[2]), heir, x[2])
  end
end

local function leave_lane(seq, lane) -- its place is another's, in this same script
  local seats = lane and seats_of(lane) or ''
  if seat_in(seats, seq) then fill_lane(lane, without(seats, seq)) end
end

local function leave_lanes(seqs, rows) -- where there is a pace, all leave before anybody goes on: who is gone waits for no token
  local lanes = {}
  for i, row in ipairs(rows) do
    local lane = lane_of(row)
    if lane and places_now() and pace > 0 then
      local seats = seats_of(lane)
      if seat_in(seats, seqs[i]) then
        keep_seats(lane, without(seats, seqs[i]))
        lanes[#lanes + 1] = lane
      end
    else
      leave_lane(seqs[i], lane)
    end
  end
  for _, lane in ipairs(lanes) do fill_lane(lane, seats_of(lane)) end
end

local function step_back(seq, lane) -- it will be tried again later: it keeps its place only where groups keep order
  if lane and places_now() > 0 then leave_lane(seq, lane) end
end

-- Its time has come. Perhaps it has kept its place; where groups keep order it may need a token for another try.
local function resume(seq, rank, attempts, trace, lane)
  local may, at = true, nil
  if lane and not seat_in(seats_of(lane), seq) then
    may, at = take_place(seq, nil, lane)
  elseif lane and places_now() == 0 then
    at = token(lane, 1)
  end
  if not may then return hold(seq, attempts, nil, 'group', lane) end
  if at and at > now then return enter_delayed(seq, at, attempts, trace) end
  return enter_ready(seq, rank, attempts, trace)
end

-- Its lease is over, and it goes back at once: if its group has a pace, it needs another token. While others wait for all
-- there is, it has no place, and asks for one then.
local function come_back(seq, rank, attempts, trace, lane)
  if lane and places_now() and pace > 0 then
    local seats = without(seats_of(lane), seq)
    local _, waiting = vacant(seats)
    keep_seats(lane, waiting < burst and seats .. seq or seats)
    local at = token(lane, waiting + 1)
    if at > now then return enter_delayed(seq, at, attempts, trace) end
  end
  return enter_ready(seq, rank, attempts, trace)
end

local function restore_marks(seq, row) -- it waits again: its expiry, and its key if no newer message has it
  if flags_of(row) % 2 == 1 then
    local extra = extra_of(row)
    if extra.e then
      call('ZADD', K .. 'expiry', extra.e, seq)
      falls_due(extra.e)
    end
    if extra.k then call('HSETNX', K .. 'key', extra.k, seq) end
  end
end

local function drop_marks(seq, row)
  if flags_of(row) % 2 == 1 then
    local extra = extra_of(row)
    if extra.e then call('ZREM', K .. 'expiry', seq) end
    if extra.k and call('HGET', K .. 'key', extra.k) == seq then call('HDEL', K .. 'key', extra.k) end
  end
end

local function withdraw(seq, row, x) -- out of ready, delayed or held, with its marks
  local rank = rank_of(row)
  if x[1] == READY then
    leave_ready(seq, rank, x[4])
    if x[4] or rank ~= FIFO then call('ZREM', K .. 'aged', seq) end
  elseif x[1] == DELAYED then
    call('ZREM', K .. 'delayed', seq)
  else
    call('ZREM', K .. 'held', seq)
    if x[6] == 1 then call('ZREM', K .. 'lanes', redis.sha1hex(extra_of(row).l) .. seq) end
  end
  drop_marks(seq, row)
end

local function end_as(state, seq, attempts, trace, reason) -- it ends, or is dead; the caller lets it leave its place
  call('ZADD', K .. INDEX[state], now, seq)
  ends[seq] = { state, attempts, trace, now, reason or '', 0 }
  put_place(seq, ends[seq])
end

local function expire_as(seq, row, attempts) -- it waited past its expiry: it is expired, or dead if that was its deadline
  local extra = extra_of(row)
  local p = extra.p
  if p and p[6] and p[2] <= extra.e then
    end_as(DEAD, seq, attempts, '', 'deadline_passed')
    note('expire', DEAD, seq, attempts, nil, 'deadline_passed')
  else
    end_as(EXPIRED, seq, attempts, '')
    note('expire', EXPIRED, seq, attempts)
  end
end

local function finish_as(state, seq, row, attempts, trace, reason)
  end_as(state, seq, attempts, trace, reason)
  leave_lane(seq, extra_of(row).l)
end

local function failed(seq, attempts, outcome, worker, error, traceback) -- what is kept of an attempt that failed
  local raw = call('HGET', K .. 'f', seq)
  local count, before = 0, ''
  if raw then count, before = struct.unpack('>I4', raw, 2), raw:sub(6) end
  call('HSET', K .. 'f', seq, '\221' .. struct.pack('>I4', count + 1) .. before
    .. encode({ attempts, now, outcome, worker or '', error or false, traceback or false }))
  if error then call('HSET', K .. 'e', seq, error) else call('HDEL', K .. 'e', seq) end
end

local function stem_of(id) -- what ids that were loaded together have in common: the first 11 bytes of a UUIDv8
  return id:sub(15, 15) == '8' and id:sub(1, 26)
end

local function forget(seq, row) -- the message is gone for good
  local extra = extra_of(row)
  if extra.o then
    call('HDEL', K .. 'own', extra.o)
    local stem = stem_of(extra.o)
    local left = stem and redis.pcall('HINCRBY', K .. 'stems', stem, -1) -- when out of memory it only counts too many
    if type(left) == 'number' and left <= 0 then call('HDEL', K .. 'stems', stem) end
  end
  leave_block(seq)
  for _, name in ipairs({ 'f', 'e', 'r' }) do call('HDEL', K .. name, seq) end
  call('ZREM', K .. 'kept', seq)
end
