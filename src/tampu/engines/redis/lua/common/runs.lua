-- Ready messages that were published together and have not moved are one member of `ready`: a run.
-- A run: FIFO, the first number, '*', count; the other numbers follow in steps of two within its millisecond. No other
-- message sorts between them: positions are assigned later. `n`, field more: messages in `ready` minus members.
local FIFO = '8000000000000000'
local FAIR = '0000000000000001' -- rank of messages in a fair queue: the turn of the group is part of their position

local function run_of(member) -- milliseconds, first counter, count; nil for a single message
  if byte(member, 33) == 42 then
    return sub(member, 17, 27), tonumber(sub(member, 28, 32), 16), tonumber(sub(member, 34))
  end
end

local function run(prefix, no, count)
  local first = FIFO .. prefix .. format('%05x', no)
  return count > 1 and first .. '*' .. count or first
end

local function more(change)
  if change ~= 0 then call('HINCRBY', K .. 'n', 'more', change) end
end

local function enter_run(prefix, no, count)
  call('ZADD', K .. 'ready', 0, run(prefix, no, count))
  more(count - 1)
end

local function run_with(seq) -- the run that has a number: member, milliseconds, first counter, count, index of the number
  local member = call('ZREVRANGEBYLEX', K .. 'ready', '[' .. FIFO .. seq .. '~', '[' .. FIFO, 'LIMIT', 0, 1)[1]
  local prefix, no, count = run_of(member or '')
  if prefix ~= sub(seq, 1, 11) then return end
  local offset = (tonumber(sub(seq, 12), 16) - no) / 2
  if offset < count and offset % 1 == 0 then return member, prefix, no, count, offset end
end

local function member_of(seq, rank, pos) return (rank == FAIR and '' or rank) .. (pos or '') .. seq end

local function leave_ready(seq, rank, pos) -- as a member, or cut out of its run
  if call('ZREM', K .. 'ready', member_of(seq, rank, pos)) == 1 or pos or rank ~= FIFO then return end
  local member, prefix, no, count, offset = run_with(seq)
  if not member then return end
  local behind = count - offset - 1
  call('ZREM', K .. 'ready', member)
  if offset > 0 then call('ZADD', K .. 'ready', 0, run(prefix, no, offset)) end
  if behind > 0 then call('ZADD', K .. 'ready', 0, run(prefix, no + 2 * (offset + 1), behind)) end
  more(math.max(0, offset - 1) + math.max(0, behind - 1) - (count - 1))
end

local function heads(limit) -- first members that together have at least `limit` messages, or all
  local first = call('ZRANGE', K .. 'ready', 0, 0)
  local _, _, count = run_of(first[1] or '')
  if limit <= (count or 1) or not first[1] then return first end
  return call('ZRANGE', K .. 'ready', 0, limit - 1)
end

local function spread(members, limit) -- runs replaced by one member per message
  local found = {}
  for _, member in ipairs(members) do
    local prefix, no, count = run_of(member)
    for k = 0, (count or 1) - 1 do
      if #found >= limit then return found end
      found[#found + 1] = prefix and run(prefix, no + 2 * k, 1) or member
    end
  end
  return found
end

local function ready_count() return call('ZCARD', K .. 'ready') + (tonumber(call('HGET', K .. 'n', 'more') or 0)) end

local function depth_now() -- number of live messages
  local depth = ready_count()
  for _, index in ipairs({ 'delayed', 'leased', 'held' }) do depth = depth + call('ZCARD', K .. index) end
  return depth
end
