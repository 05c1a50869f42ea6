-- rerank: give messages another rank. Ready ones keep their position within the rank; in a fair queue they take turns.
-- needs: base blocks runs journal moves
-- KEYS  1: tag of the queue
-- ARGV  1: now   2: msgpack [number, rank, number, rank, …]
-- Returns nothing. Skips messages that are gone.
local pairs_ = decode(ARGV[2])
for i = 1, #pairs_, 2 do
  local seq, rank = pairs_[i], pairs_[i + 1]
  local row = row_of(seq)
  if row and rank_of(row) ~= rank then
    local x = status_of(seq)
    call('HSET', key_of('m', seq), seq, row:sub(1, 2) .. rank .. row:sub(19))
    if x[1] == READY then
      local pos = x[4] and sub(x[4], -16)
      if rank == FAIR then pos = turn_of(seq) .. (pos or seq) end
      call('ZADD', K .. 'ready', 0, member_of(seq, rank, pos))
      leave_ready(seq, rank_of(row), x[4])
      if pos ~= x[4] then set_status(seq, READY, x[2], x[3], pos) end
      if pos or rank ~= FIFO then call('ZADD', K .. 'aged', 0, seq) else call('ZREM', K .. 'aged', seq) end
    end
  end
end
