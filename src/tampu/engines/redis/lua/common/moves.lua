-- How a message moves between the indexes. Its state is the index it is in. "Own id": an id that the user gave.
-- `m`, in blocks: seq -> [rank, flags, created, max_attempts, extra, body]; rank and flags are at fixed offsets.
-- `x`, in blocks, the status: seq -> [state, attempts, settle marker, at, …]; a message that never moved since it was
-- published ready has none.
-- `ready`: members rank .. pos .. seq (rank .. seq if pos is seq) and runs, all with the same score. `held`: members seq.
-- `leased`, `delayed`, `expiry`, `done`, `dead`, `cancelled`, `expired`: by time. `aged`: ready ones out of number order.
-- `correlated`: hash of tenant and correlation id .. seq, all with the same score.
-- `own`: own id -> seq. `stems`: prefix of own ids -> number of messages. `key`: key -> seq of the waiting message.
-- `lane`: group -> concatenated seqs that hold a slot. `lanes`: messages that wait for a slot, hash of the group .. seq.
-- `n`, field places: slots of a group; none or 0: one slot, which is kept through retries. Fields pace and burst: the
-- group rate as microseconds per token, and the burst. `pace`: group -> when all its spent tokens are refilled.
local READY, DELAYED, LEASED, HELD, DONE, DEAD, CANCELLED, EXPIRED = 0, 1, 2, 3, 4, 5, 6, 7
local INDEX = { [0] = 'ready', 'delayed', 'leased', 'held', 'done', 'dead', 'cancelled', 'expired' }

local function rank_of(row) return row:sub(3, 18) end
local function flags_of(row) return row:byte(19) end -- 1: key or expiry, 2: group, 4: own id, 8: has field p, 16: has field c

local function details(row) -- created, max_attempts, extra
  local _, created, most, extra = cmsgpack.unpack_limit(row, 3, 19)
  return created, most, extra
end

local function with_head(rank, flags, created, most, extra, body)
  return '\150\176' .. rank .. string.char(flags) .. encode(created, most, extra) .. body
end

local function body_of(row) -- still packed
  local offset = cmsgpack.unpack_limit(row, 3, 19)
  return row:sub(offset + 1)
end

local function extra_of(row)
  if flags_of(row) == 0 then return {} end
  local _, _, extra = details(row)
  return extra
end

local function status_of(seq)
  local raw = raw_status(seq)
  return raw and decode(raw) or { READY, 0, '', false }
end

local function set_status(seq, ...) write_status(seq, { ... }) end

-- Turns of groups in a fair queue; tampu/engines/fair_ranks.py explains the rule. `fair`: group -> its last turn.
local FORGOTTEN = 2 -- groups behind the round that are removed for each turn that is written
local round

local function current_round()
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
  local turn = math.max(current_round(), (tonumber(call('ZSCORE', K .. 'fair', group)) or 0) + 1)
  local behind = call('ZRANGEBYSCORE', K .. 'fair', '-inf', '(' .. text_of(round), 'LIMIT', 0, FORGOTTEN)
  if #behind > 0 then call('ZREM', K .. 'fair', unpack(behind)) end
  call('ZADD', K .. 'fair', text_of(turn), group)
  return format('%08x%08x', 2147483648 + math.floor(turn / 4294967296), turn % 4294967296)
end

local function enter_ready(seq, rank, attempts, marker) -- at the back of its rank
  local pos = number()
  if rank == FAIR then pos = turn_of(seq) .. pos end
  call('ZADD', K .. 'ready', 0, member_of(seq, rank, pos))
  call('ZADD', K .. 'aged', 0, seq)
  set_status(seq, READY, attempts, marker, pos)
  newly_ready = newly_ready + 1
  return READY
end

local function enter_delayed(seq, run_at, attempts, marker)
  call('ZADD', K .. 'delayed', run_at, seq)
  set_status(seq, DELAYED, attempts, marker, run_at)
  falls_due(run_at)
  return DELAYED
end

local function start(seq, rank, run_at, attempts)
  if run_at and run_at > now then return enter_delayed(seq, run_at, attempts, '') end
  return enter_ready(seq, rank, attempts, '')
end

local function hold(seq, attempts, run_at, reason, group, marker)
  call('ZADD', K .. 'held', 0, seq)
  set_status(seq, HELD, attempts, marker or '', run_at or false, reason, group and 1 or 0)
  if group then call('ZADD', K .. 'lanes', 0, redis.sha1hex(group) .. seq) end
  return HELD
end

local function group_of(row) return flags_of(row) % 4 >= 2 and extra_of(row).l or nil end

local MOST_FREED = 100 -- messages that one freed slot may release; several only after a limit was raised
local ANY = 1073741824 -- slots: practically no limit
local slots, rate_us, burst

local function group_slots()
  if not slots then
    local kept = call('HMGET', K .. 'n', 'places', 'pace', 'burst')
    slots, rate_us, burst = tonumber(kept[1] or 0), tonumber(kept[2] or 0), tonumber(kept[3] or 0)
  end
  return slots
end

local function set_limits(new_slots, new_rate_us, new_burst)
  if group_slots() ~= new_slots or rate_us ~= new_rate_us or burst ~= new_burst then
    call('HSET', K .. 'n', 'places', new_slots, 'pace', text_of(new_rate_us), 'burst', new_burst)
  end
  slots, rate_us, burst = new_slots, new_rate_us, new_burst
end

local function holders_of(group) return call('HGET', K .. 'lane', group) or '' end

local function write_holders(group, holders)
  if holders == '' then call('HDEL', K .. 'lane', group) else call('HSET', K .. 'lane', group, holders) end
end

local function holder_at(holders, seq) -- where seq begins in holders, or nil
  for i = 1, #holders, 16 do
    if sub(holders, i, i + 15) == seq then return i end
  end
end

local function without(holders, seq)
  local i = holder_at(holders, seq)
  return i and sub(holders, 1, i - 1) .. sub(holders, i + 16) or holders
end

-- Number of free slots, and of slot holders that are not claimed yet (0 without a group rate).
local function free_slots(holders)
  local free, waiting = math.max(group_slots(), 1) - #holders / 16, 0
  if rate_us > 0 then
    for i = 1, #holders, 16 do
      if not call('ZSCORE', K .. 'leased', sub(holders, i, i + 15)) then waiting = waiting + 1 end
    end
    free = math.min(free, burst - waiting)
  end
  return free, waiting
end

local function spent_until(group) -- capped, because an earlier clock may have been ahead; only with a group rate
  return math.min(tonumber(call('ZSCORE', K .. 'pace', group) or 0), now + burst * rate_us)
end

local function token_time(group, nth, run_at) -- when the nth message that waits for a token may start; not before run_at
  if rate_us == 0 then return run_at end
  return math.max(math.max(spent_until(group), now) - (burst - nth) * rate_us, run_at or 0)
end

-- The group rate or the clock has changed: messages that wait for a token get a new time. Where groups keep order, some
-- messages wait for another reason and cannot be distinguished, so all stay as they are.
local function retime(group, holders)
  local spent, waits, others = tonumber(call('ZSCORE', K .. 'pace', group) or 0), {}, 0
  if spent == 0 then return end
  if group_slots() and rate_us > 0 then call('ZADD', K .. 'pace', text_of(spent_until(group)), group) end
  if slots == 0 then return end
  for i = 1, #holders, 16 do
    local seq = sub(holders, i, i + 15)
    local x = status_of(seq)
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
  for i, wait in ipairs(waits) do
    enter_delayed(wait[1], math.max(token_time(group, others + i, now), now), wait[2][2], wait[2][3])
  end
end

local function take_free_slot(seq, group) -- its number among the holders that are not claimed yet; nil if no slot is free
  local holders = holders_of(group)
  local free, waiting = free_slots(holders)
  if free <= 0 then return end
  write_holders(group, holders .. seq)
  return waiting + 1
end

-- Whether it may start, and when. A delayed message takes no slot yet, unless groups keep order.
local function take_slot(seq, run_at, group)
  if not group or (group_slots() > 0 and run_at and run_at > now) then return true, run_at end
  local nth = take_free_slot(seq, group)
  if not nth then return false, run_at end
  return true, token_time(group, nth, run_at)
end

local function admit(seq, rank, run_at, attempts, group) -- ready or delayed; held if its group has no free slot
  local may, at = take_slot(seq, run_at, group)
  if not may then return hold(seq, attempts, run_at, 'group', group) end
  return start(seq, rank, at, attempts)
end

local function fill_group(group, holders) -- give free slots to the next messages of the group
  local free, waiting = free_slots(holders)
  free = math.min(free, MOST_FREED)
  local freed, mark = {}, redis.sha1hex(group)
  if free > 0 then freed = call('ZRANGEBYLEX', K .. 'lanes', '[' .. mark, '[' .. mark .. '~', 'LIMIT', 0, free) end
  for i, member in ipairs(freed) do
    call('ZREM', K .. 'lanes', member)
    freed[i] = member:sub(41)
  end
  write_holders(group, holders .. table.concat(freed))
  for i, seq in ipairs(freed) do
    call('ZREM', K .. 'held', seq)
    local x = status_of(seq)
    note('free', start(seq, rank_of(row_of(seq)), token_time(group, waiting + i, x[4]), x[2]), seq, x[2])
  end
end

local function leave_group(seq, group) -- give up its slot; the next message gets it in the same script
  local holders = group and holders_of(group) or ''
  if holder_at(holders, seq) then fill_group(group, without(holders, seq)) end
end

-- With a group rate, all leave before the next ones start: messages that are gone must not count as waiting for a token.
local function leave_groups(seqs, rows)
  local groups = {}
  for i, row in ipairs(rows) do
    local group = group_of(row)
    if group and group_slots() and rate_us > 0 then
      local holders = holders_of(group)
      if holder_at(holders, seqs[i]) then
        write_holders(group, without(holders, seqs[i]))
        groups[#groups + 1] = group
      end
    else
      leave_group(seqs[i], group)
    end
  end
  for _, group in ipairs(groups) do fill_group(group, holders_of(group)) end
end

local function leave_for_retry(seq, group) -- retried later: it keeps its slot only where groups keep order
  if group and group_slots() > 0 then leave_group(seq, group) end
end

-- A delayed message is due. It may still hold its slot; where groups keep order, it may need a token for the retry.
local function resume(seq, rank, attempts, marker, group)
  local may, at = true, nil
  if group and not holder_at(holders_of(group), seq) then
    may, at = take_slot(seq, nil, group)
  elseif group and group_slots() == 0 then
    at = token_time(group, 1)
  end
  if not may then return hold(seq, attempts, nil, 'group', group) end
  if at and at > now then return enter_delayed(seq, at, attempts, marker) end
  return enter_ready(seq, rank, attempts, marker)
end

-- Its lease ended and it returns without a delay. With a group rate it needs another token. If other messages wait for
-- all tokens, it gives up its slot and takes one when its token time comes.
local function return_to_queue(seq, rank, attempts, marker, group)
  if group and group_slots() and rate_us > 0 then
    local holders = without(holders_of(group), seq)
    local _, waiting = free_slots(holders)
    write_holders(group, waiting < burst and holders .. seq or holders)
    local at = token_time(group, waiting + 1)
    if at > now then return enter_delayed(seq, at, attempts, marker) end
  end
  return enter_ready(seq, rank, attempts, marker)
end

local function restore_marks(seq, row) -- it waits again: restore its expiry, and its key unless a newer message has it
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

local function correlate(seq, hash) call('ZADD', K .. 'correlated', 0, hash .. seq) end

local function replace_body(seq, body, kind, actor, hash) -- id, order, attempts and the fields that decide them stay
  local row = row_of(seq)
  local created, most, extra = details(row)
  local flags = flags_of(row)
  extra = extra or {}
  if not extra.p then
    extra.p = { 0, false, false, false, false, false }
    if flags % 16 < 8 then flags = flags + 8 end
  end
  if extra.c ~= hash then
    if extra.c then call('ZREM', K .. 'correlated', extra.c .. seq) end
    if hash then correlate(seq, hash) end
    flags = flags - (extra.c and 16 or 0) + (hash and 16 or 0)
    extra.c = hash
  end
  call('HSET', key_of('m', seq), seq, with_head(rank_of(row), flags, created, most, extra, body))
  local x = status_of(seq)
  note('replace', x[1], seq, x[2], actor, nil, kind)
end

local function withdraw(seq, row, x) -- remove it from ready, delayed or held, with its expiry and key
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

local function end_as(state, seq, attempts, marker, reason) -- enter a terminal state; the caller frees its slot
  call('ZADD', K .. INDEX[state], now, seq)
  ends[seq] = { state, attempts, marker, now, reason or '', 0 }
  write_status(seq, ends[seq])
end

local function expire_as(seq, row, attempts) -- past its expiry: expired, or dead if that was its deadline
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

local function finish_as(state, seq, row, attempts, marker, reason)
  end_as(state, seq, attempts, marker, reason)
  leave_group(seq, extra_of(row).l)
end

local function failed(seq, attempts, outcome, worker, error, traceback) -- store a failed attempt
  local raw = call('HGET', K .. 'f', seq)
  local count, before = 0, ''
  if raw then count, before = struct.unpack('>I4', raw, 2), raw:sub(6) end
  call('HSET', K .. 'f', seq, '\221' .. struct.pack('>I4', count + 1) .. before
    .. encode({ attempts, now, outcome, worker or '', error or false, traceback or false }))
  if error then call('HSET', K .. 'e', seq, error) else call('HDEL', K .. 'e', seq) end
end

local function end_waiting(state, seq, attempts, reason, error, actor) -- nobody works on it; the caller frees its slot
  end_as(state, seq, attempts, '', reason)
  if state == DEAD then failed(seq, attempts, 'reject', actor, error) end
  note(state == DEAD and 'reject' or state == DONE and 'ack' or 'cancel', state, seq, attempts, actor, reason)
end

local function id_prefix_of(id) -- the prefix that ids loaded together share: the first 11 bytes of a UUIDv8
  return id:sub(15, 15) == '8' and id:sub(1, 26)
end

local function forget(seq, row) -- remove all keys of the message
  local extra = extra_of(row)
  if extra.o then
    call('HDEL', K .. 'own', extra.o)
    local id_prefix = id_prefix_of(extra.o)
    -- If this fails (out of memory), the count is only too high.
    local left = id_prefix and redis.pcall('HINCRBY', K .. 'stems', id_prefix, -1)
    if type(left) == 'number' and left <= 0 then call('HDEL', K .. 'stems', id_prefix) end
  end
  if extra.c then call('ZREM', K .. 'correlated', extra.c .. seq) end
  leave_block(seq)
  for _, name in ipairs({ 'f', 'e', 'r' }) do call('HDEL', K .. name, seq) end
  call('ZREM', K .. 'kept', seq)
end
