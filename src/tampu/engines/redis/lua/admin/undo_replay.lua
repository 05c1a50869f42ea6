-- undo_replay: messages that wait and were not delivered since their replay are dead again.
-- needs: base blocks runs journal moves
-- KEYS  1: tag of the queue
-- ARGV  1: now   2: msgpack [number or own id, …]   3: msgpack [map, …] for each: d why it was dead, a its attempts
--       then, w who asked for it
-- Returns {newly_ready, due, answer, …}: {1, state}, {0, the state it is in}; {-1}: not here.
local answers, gone, rows, how = { 0, false }, {}, {}, decode(ARGV[3])
for i, name in ipairs(decode(ARGV[2])) do
  local seq = #name == 16 and name or call('HGET', K .. 'own', name)
  local row = seq and row_of(seq)
  if not row then
    answers[2 + i] = { -1 }
  else
    local x = status_of(seq)
    if (x[1] == READY or x[1] == DELAYED or x[1] == HELD) and x[2] == 0 then
      guard()
      withdraw(seq, row, x)
      end_as(DEAD, seq, how[i].a, '', how[i].d)
      note('reject', DEAD, seq, how[i].a, how[i].w, how[i].d)
      gone[#gone + 1], rows[#rows + 1] = seq, row
      answers[2 + i] = { 1, DEAD }
    else
      answers[2 + i] = { 0, x[1] }
    end
  end
end
leave_groups(gone, rows)
finish()
answers[1], answers[2] = newly_ready, due
return answers
