-- `m` and `x` are split into many hashes, `m:<block>` and `x:<block>`, so that messages published one after the other are
-- close in memory. In one large hash every access misses the CPU cache, and rehashing slows all calls for a long time.
-- `blocks`: names of the blocks, the milliseconds (11 digits) of the first number of each. All numbers of a millisecond
-- are in one block: the last one that does not begin after it. Older messages are in `m` and `x`, as in layout 3.
local ends_with = {} -- milliseconds -> ending of the names of its hashes

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

local function raw_status(seq) return call('HGET', key_of('x', seq), seq) end

local function write_status(seq, x) call('HSET', key_of('x', seq), seq, encode(x)) end

local function fetch_each(name, seqs) -- from `m` or `x`; one call per block
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

local function write_statuses(list) -- number, x, number, x, …
  local count, first = #list, 1
  while first <= count do
    local block, last = block_of(list[first]), first + 1
    local furthest = math.min(count, first + PIECE - 1)
    while last < furthest and block_of(list[last + 1]) == block do last = last + 2 end
    call('HSET', K .. 'x' .. block, unpack(list, first, last))
    first = last + 1
  end
end

local function leave_block(seq) -- removes an empty block, unless it is the one being filled
  local block = block_of(seq)
  call('HDEL', K .. 'm' .. block, seq)
  call('HDEL', K .. 'x' .. block, seq)
  if block ~= '' and call('EXISTS', K .. 'm' .. block) == 0 and call('HGET', K .. 'n', 'block') ~= sub(block, 2) then
    call('ZREM', K .. 'blocks', sub(block, 2))
  end
end
