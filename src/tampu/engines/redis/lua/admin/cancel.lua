-- cancel: cancel waiting messages; ask the workers of leased ones to stop.
-- needs: base blocks runs journal moves
-- KEYS  1: tag of the queue
-- ARGV  1: now   2: msgpack [number or own id, …]
-- Returns {newly_ready, due, answer, …}: {1, state} if it is cancelled or its worker was asked; {0, state} if it has
--       ended otherwise; {-1}: not here.
local answers, gone, rows = { 0, false }, {}, {}
for i, name in ipairs(decode(ARGV[2])) do
  local seq = #name == 16 and name or call('HGET', K .. 'own', name)
  local row = seq and row_of(seq)
  if not row then
    answers[2 + i] = { -1 }
  else
    local x = status_of(seq)
    if x[1] == READY or x[1] == DELAYED or x[1] == HELD then
      guard()
      withdraw(seq, row, x)
      end_as(CANCELLED, seq, x[2], '')
      gone[#gone + 1], rows[#rows + 1] = seq, row
      note('cancel', CANCELLED, seq, x[2])
      answers[2 + i] = { 1, CANCELLED }
    elseif x[1] == LEASED then
      x[6] = 1
      write_status(seq, x)
      note('ask_cancel', LEASED, seq, x[2])
      answers[2 + i] = { 1, LEASED }
    else
      answers[2 + i] = { x[1] == CANCELLED and 1 or 0, x[1] }
    end
  end
end
leave_groups(gone, rows)
finish()
answers[1], answers[2] = newly_ready, due
return answers
