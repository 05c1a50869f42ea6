-- Some members of an index in its order, after a place: {member, score, …}, and their numbers. Needs: runs.
local function members(name, limit, after, score)
  local index = K .. name
  local found
  if name == 'ready' then -- a run is shown as its messages; the place may be in the middle of one
    local some = {}
    if after == '' then
      some = heads(limit)
    else
      local member, prefix, no, count, place = run_with(#after == 32 and after:sub(17) or '')
      if member and place < count - 1 then some[1] = run(prefix, no + 2 * (place + 1), count - place - 1) end
      local rest = call('ZRANGEBYLEX', index, '(' .. after .. '~', '+', 'LIMIT', 0, limit)
      for _, one in ipairs(rest) do some[#some + 1] = one end
    end
    found = {}
    for i, member in ipairs(spread(some, limit)) do found[2 * i - 1], found[2 * i] = member, '0' end
  elseif after == '' then
    found = call('ZRANGE', index, 0, limit - 1, 'WITHSCORES')
  elseif score == '' then
    found = {}
    for i, member in ipairs(call('ZRANGEBYLEX', index, '(' .. after, '+', 'LIMIT', 0, limit)) do
      found[2 * i - 1], found[2 * i] = member, '0'
    end
  else -- among those of the same time, by halves: the one it starts after may be gone
    local low, high = call('ZCOUNT', index, '-inf', '(' .. score), call('ZCOUNT', index, '-inf', score)
    while low < high do
      local middle = math.floor((low + high) / 2)
      if call('ZRANGE', index, middle, middle)[1] > after then high = middle else low = middle + 1 end
    end
    found = call('ZRANGE', index, low, low + limit - 1, 'WITHSCORES')
  end
  local seqs = {}
  for i = 1, #found, 2 do seqs[#seqs + 1] = found[i]:sub(-16) end
  return found, seqs
end
