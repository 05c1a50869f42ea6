-- Messages that were published one after the other lie side by side: `m` and `x` are many hashes, `m:<block>`, `x:<block>`.
-- In a large one each message is somewhere else in memory, where no cache has it; and when it grows, every call has a share
-- in moving it, for a long time.
-- `blocks`: their names, the milliseconds (11 digits) of the first number of each. All numbers of a millisecond are in one:
-- a message is in the last block that does not begin after it; what is older than all is in `m` and `x`, as in layout 3.
local ends_with = {} -- milliseconds -> how the names of its hashes end

local function block_of(seq)
  local ms = sub(seq, 1, 11)
  local known = ends_with[ms]
  if not known then
    local block = call('ZREVRANGEBYLEX', K .. 'blocks', '[' .. ms, '-', 'LIMIT', 0, 1)[1]
    known = block and ':' .. block or ''
    ends_with[ms] = known
  end
  return known
end

local function key_of(name, seq) return K .. name .. block_of(seq) end

local function row_of(seq) return call('HGET', key_of('m', seq), seq) end

local function raw_place(seq) return call('HGET', key_of('x', seq), seq) end

local function put_place(seq, x) call('HSET', key_of('x', seq), seq, encode(x)) end

local function fetch_each(name, seqs) -- from `m` or `x`; what lies in one block at once
  local count, found, first = #seqs, {}, 1
  while first <= count do
    local block, last = block_of(seqs[first]), first
    local furthest = math.min(count, first + PIECE - 1)
    while last < furthest and block_of(seqs[last + 1]) == block do last = last + 1 end
    local some = call('HMGET', K .. name .. block, unpack(seqs, first, last))
    if first == 1 and last == count then return some end
    for i, value in ipairs(some) do found[first - 1 + i] = value end
    first = last + 1
  end
  return found
end

local function put_places(list) -- number, x, number, x, …
  local count, first = #list, 1
  while first <= count do
    local block, last = block_of(list[first]), first + 1
    local furthest = math.min(count, first + PIECE - 1)
    while last < furthest and block_of(list[last + 1]) == block do last = last + 2 end
    call('HSET', K .. 'x' .. block, unpack(list, first, last))
    first = last + 1
  end
end

local function leave_block(seq) -- the last one takes the block with it, unless it is the one that is being filled
  local block = block_of(seq)
  call('HDEL', K .. 'm' .. block, seq)
  call('HDEL', K .. 'x' .. block, seq)
  if block ~= '' and call('EXISTS', K .. 'm' .. block) == 0 and call('HGET', K .. 'n', 'block') ~= sub(block, 2) then
    call('ZREM', K .. 'blocks', sub(block, 2))
  end
end
