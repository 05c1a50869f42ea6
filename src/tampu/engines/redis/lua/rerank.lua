-- rerank: give messages another rank; those that are ready keep their position in it.
-- needs: base journal moves
-- KEYS  1: tag of the queue
-- ARGV  1: now   2: msgpack [number, rank, number, rank, …]
-- Returns nothing. A message that is gone by now is left out.
local pairs_ = decode(ARGV[2])
for i = 1, #pairs_, 2 do
  local seq, rank = pairs_[i], pairs_[i + 1]
  local row = call('HGET', K .. 'm', seq)
  if row and rank_of(row) ~= rank then
    local x = place_of(seq)
    call('HSET', K .. 'm', seq, row:sub(1, 2) .. rank .. row:sub(19))
    if x[1] == READY then
      local rest = x[4] and x[4] .. seq or seq
      call('ZADD', K .. 'ready', 0, rank .. rest)
      call('ZREM', K .. 'ready', rank_of(row) .. rest)
      if x[4] or rank ~= FIFO then call('ZADD', K .. 'aged', 0, seq) else call('ZREM', K .. 'aged', seq) end
    end
  end
end
