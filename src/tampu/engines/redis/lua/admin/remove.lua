-- remove: delete messages by number or own id. Never leased ones.
-- needs: base blocks runs journal moves
-- KEYS  1: tag of the queue
-- ARGV  1: now   2: msgpack [number or own id, …]   3: msgpack [map, …] for each: w who asked for it
-- Returns {newly_ready, due, answer, …}: {1, the state it was in}; {0, state} if it is leased; {-1}: not here.
local answers, gone, rows, seen, how = { 0, false }, {}, {}, {}, decode(ARGV[3])
for i, name in ipairs(decode(ARGV[2])) do
  local seq = #name == 16 and name or call('HGET', K .. 'own', name)
  local row = seq and not seen[seq] and row_of(seq)
  if not row then
    answers[2 + i] = { -1 }
  else
    local x = status_of(seq)
    if x[1] == LEASED then
      answers[2 + i] = { 0, LEASED }
    else
      guard()
      if x[1] == READY or x[1] == DELAYED or x[1] == HELD then
        withdraw(seq, row, x)
      else
        call('ZREM', K .. INDEX[x[1]], seq)
      end
      note('purge', nil, seq, x[2], how[i].w)
      seen[seq] = true
      gone[#gone + 1], rows[#rows + 1] = seq, row
      answers[2 + i] = { 1, x[1] }
    end
  end
end
leave_groups(gone, rows)
for i, row in ipairs(rows) do forget(gone[i], row) end
finish()
answers[1], answers[2] = newly_ready, due
return answers
