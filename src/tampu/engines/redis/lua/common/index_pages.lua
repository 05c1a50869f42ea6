-- A page of an index, after a member: {member, score, …}, and the numbers of the messages. Needs: runs.
local function members(name, limit, after, score)
  local index = K .. name
  local found
  if name == 'ready' then -- a run is returned as its messages; the page may begin inside one
    local some = {}
    if after == '' then
      some = heads(limit)
    else
      local member, prefix, no, count, offset = run_with(#after == 32 and after:sub(17) or '')
      if member and offset < count - 1 then some[1] = run(prefix, no + 2 * (offset + 1), count - offset - 1) end
      local rest = call('ZRANGEBYLEX', index, '(' .. after .. '~', '+', 'LIMIT', 0, limit)
      for _, member in ipairs(rest) do some[#some + 1] = member end
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
  else -- binary search among members with the same score: the member it starts after may be gone
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
