-- page: some messages of one state in the order of its index, after a place. Writes nothing.
-- needs: base
-- KEYS  1: tag of the queue
-- ARGV  1: now   2: index   3: most   4: member it starts after, or ''   5: its score, for an index by time
-- Returns {member, score, m, x, e, member, …}
local index, limit, after = K .. ARGV[2], tonumber(ARGV[3]), ARGV[4]
local found
if after == '' then
  found = call('ZRANGE', index, 0, limit - 1, 'WITHSCORES')
elseif ARGV[5] == '' then
  found = {}
  for i, member in ipairs(call('ZRANGEBYLEX', index, '(' .. after, '+', 'LIMIT', 0, limit)) do
    found[2 * i - 1], found[2 * i] = member, '0'
  end
else -- among those of the same time, by halves: the one it starts after may be gone
  local low, high = call('ZCOUNT', index, '-inf', '(' .. ARGV[5]), call('ZCOUNT', index, '-inf', ARGV[5])
  while low < high do
    local middle = math.floor((low + high) / 2)
    if call('ZRANGE', index, middle, middle)[1] > after then high = middle else low = middle + 1 end
  end
  found = call('ZRANGE', index, low, low + limit - 1, 'WITHSCORES')
end
local seqs, rows = {}, {}
for i = 1, #found, 2 do seqs[#seqs + 1] = found[i]:sub(-16) end
local messages, places, errors = fetch('m', seqs), fetch('x', seqs), fetch('e', seqs)
for i = 1, #seqs do
  local k = #rows
  rows[k + 1], rows[k + 2] = found[2 * i - 1], found[2 * i]
  rows[k + 3], rows[k + 4], rows[k + 5] = messages[i], places[i], errors[i]
end
return rows
