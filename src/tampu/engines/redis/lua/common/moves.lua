-- How a message moves between the indexes. Its state is the index it is in.
-- `m`: seq -> [rank, flags, created, max_attempts, extra, body]; rank and flags stand at fixed places.
-- `x`: seq -> [state, attempts, trace, at, …]; a message that was published ready and never moved has none.
-- ready: members rank .. pos .. seq (rank .. seq where pos is seq), all of one score. held: members seq.
-- leased (by its end), delayed, expiry, done, dead, cancelled, expired: by time. aged: the ready ones that are not first by number.
-- `own`: own id -> seq. `stems`: beginning of own ids -> how many messages have it.
-- key: key -> seq of who waits with it. lane: group -> seq whose turn it is; lanes: who waits for it, hash .. seq.
local READY, DELAYED, LEASED, HELD, DONE, DEAD, CANCELLED, EXPIRED = 0, 1, 2, 3, 4, 5, 6, 7
local INDEX = { [0] = 'ready', 'delayed', 'leased', 'held', 'done', 'dead', 'cancelled', 'expired' }
local FIFO = '8000000000000000'

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
  local raw = call('HGET', K .. 'x', seq)
  return raw and decode(raw) or { READY, 0, '', false }
end

local function put(seq, ...) call('HSET', K .. 'x', seq, encode({ ... })) end

local function enter_ready(seq, rank, attempts, trace) -- at the back of its rank
  local pos = number()
  call('ZADD', K .. 'ready', 0, rank .. pos .. seq)
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

local function admit(seq, rank, run_at, attempts, lane) -- or wait for the turn of its group
  if lane and call('HSETNX', K .. 'lane', lane, seq) == 0 then return hold(seq, attempts, run_at, 'group', lane) end
  return start(seq, rank, run_at, attempts)
end

local function leave_lane(seq, lane) -- the next of its group moves on, in this same script
  if not lane or call('HGET', K .. 'lane', lane) ~= seq then return end
  local mark = redis.sha1hex(lane)
  local heir = call('ZRANGEBYLEX', K .. 'lanes', '[' .. mark, '[' .. mark .. '~', 'LIMIT', 0, 1)[1]
  if not heir then
    call('HDEL', K .. 'lane', lane)
    return
  end
  call('ZREM', K .. 'lanes', heir)
  heir = heir:sub(41)
  call('HSET', K .. 'lane', lane, heir)
  call('ZREM', K .. 'held', heir)
  local x = place_of(heir)
  note('free', start(heir, rank_of(call('HGET', K .. 'm', heir)), x[4], x[2]), heir, x[2])
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
    call('ZREM', K .. 'ready', x[4] and rank .. x[4] .. seq or rank .. seq)
    if x[4] or rank ~= FIFO then call('ZREM', K .. 'aged', seq) end
  elseif x[1] == DELAYED then
    call('ZREM', K .. 'delayed', seq)
  else
    call('ZREM', K .. 'held', seq)
    if x[6] == 1 then call('ZREM', K .. 'lanes', redis.sha1hex(extra_of(row).l) .. seq) end
  end
  drop_marks(seq, row)
end

local function finish_as(state, seq, row, attempts, trace, reason) -- it ends, or is dead
  call('ZADD', K .. INDEX[state], now, seq)
  ends[seq] = { state, attempts, trace, now, reason or '', 0 }
  call('HSET', K .. 'x', seq, encode(ends[seq]))
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
  for _, name in ipairs({ 'm', 'x', 'f', 'e', 'r' }) do call('HDEL', K .. name, seq) end
  call('ZREM', K .. 'kept', seq)
end
