-- snapshot_changes: messages that moved after an offset of the journal, as they are now. Writes nothing.
-- needs: base blocks runs journal moves snapshot_rows
-- KEYS  1: tag of the queue
-- ARGV  1: now   2: offset   3: about how many at most   4: into how many parts to split the ended ones, or 0
--       5: minimum size of a part   6: ended from   7: ended before; '-inf', '+inf' for any   8 …: indexes of ended ones
-- Returns {offset, 1 if that is the end of the journal or 0, ended, counts, number, x, failures, expires, …}. See
--       snapshot_rows.lua. Ended is msgpack [[index, from, before, count], …]: time ranges of the indexes, only at the
--       end of the journal. Counts is msgpack of the number of ready, delayed, leased, held and dead messages.
--       `false` instead of the offset: entries after it are trimmed.
local after, limit = tonumber(ARGV[2]), tonumber(ARGV[3])
local last = tonumber(call('HGET', K .. 'n', 'end') or 0)
local touched, seqs, count, reached = {}, {}, 0, after
local function touch(seq)
  if not touched[seq] then touched[seq], seqs[#seqs + 1] = true, seq end
end
while reached < last and count < limit do
  local entry = call('XRANGE', K .. 'j', string.format('%.0f-0', reached + 1), '+', 'COUNT', 1)[1]
  if not entry then return { false, 0, '', '' } end
  local offset, n = entry[1]:match('^(%d+)-(%d+)$')
  if offset - n > reached then return { false, 0, '', '' } end
  local numbers = decode(entry[2][4])[4]
  if type(numbers) == 'table' then
    local prefix, no = numbers[1]:sub(1, 11), tonumber(numbers[1]:sub(12), 16)
    for i = 0, numbers[2] - 1 do touch(prefix .. string.format('%05x', no + 2 * i)) end
  else
    for i = 1, #numbers, 16 do touch(numbers:sub(i, i + 15)) end
  end
  reached, count = tonumber(offset), count + n
end

local function parts(index) -- split by time: messages with the same time stay together
  local from, before = ARGV[6], ARGV[7] == '+inf' and '+inf' or '(' .. ARGV[7]
  local key, wanted = K .. index, tonumber(ARGV[4])
  local first, card = call('ZCOUNT', key, '-inf', '(' .. from), call('ZCOUNT', key, from, before)
  if from == '-inf' then first = 0 end
  local size, found, low = math.max(tonumber(ARGV[5]), math.ceil(card / wanted)), {}, from
  for rank = first + size, first + card - 1, size do
    local high = call('ZRANGE', key, rank, rank, 'WITHSCORES')[2]
    if high ~= low then
      found[#found + 1] = { index, low, high, call('ZCOUNT', key, low, '(' .. high) }
      low = high
    end
  end
  found[#found + 1] = { index, low, ARGV[7], call('ZCOUNT', key, low, before) }
  return found
end

local ended = {}
if reached >= last and ARGV[4] ~= '0' then
  for i = 8, #ARGV do
    for _, part in ipairs(parts(ARGV[i])) do
      if part[4] > 0 then ended[#ended + 1] = part end
    end
  end
end
local counts = { ready_count() }
for i, index in ipairs({ 'delayed', 'leased', 'held', 'dead' }) do counts[1 + i] = call('ZCARD', K .. index) end
local answer = { string.format('%.0f', reached), reached >= last and 1 or 0, encode(ended), encode(counts) }
append_statuses(answer, seqs)
return answer
