-- cancel: cancel waiting messages, and ask the workers of leased ones to stop; or make waiting messages dead.
-- needs: base blocks runs journal moves
-- KEYS  1: tag of the queue
-- ARGV  1: now   2: msgpack [number or own id, …]   3: msgpack [map, …] for each: d why it becomes dead, e its error;
--       r the reason of a cancel, w who asked for it, h: only if it is held for this reason
-- Returns {newly_ready, due, answer, …}: {1, state} if it has ended so or its worker was asked; {0, state} if it has
--       ended otherwise, or is leased and shall be dead; {-1}: not here.
local answers, gone, rows, how = { 0, false }, {}, {}, decode(ARGV[3])
for i, name in ipairs(decode(ARGV[2])) do
  local seq = #name == 16 and name or call('HGET', K .. 'own', name)
  local row = seq and row_of(seq)
  if not row then
    answers[2 + i] = { -1 }
  else
    local x, dead = status_of(seq), how[i].d
    local to = dead and DEAD or CANCELLED
    local other = how[i].h and not (x[1] == HELD and x[5] == how[i].h)
    if not other and (x[1] == READY or x[1] == DELAYED or x[1] == HELD) then
      guard()
      withdraw(seq, row, x)
      end_waiting(to, seq, x[2], dead or how[i].r, how[i].e, how[i].w)
      gone[#gone + 1], rows[#rows + 1] = seq, row
      answers[2 + i] = { 1, to }
    elseif x[1] == LEASED and not dead and not other then
      x[6] = 1
      write_status(seq, x)
      note('ask_cancel', LEASED, seq, x[2], how[i].w, how[i].r)
      answers[2 + i] = { 1, LEASED }
    else
      answers[2 + i] = { x[1] == to and (not dead or x[5] == dead) and 1 or 0, x[1] }
    end
  end
end
leave_groups(gone, rows)
finish()
answers[1], answers[2] = newly_ready, due
return answers
