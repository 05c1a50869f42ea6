-- cancel: end what waits; ask the worker of what is leased.
-- needs: base journal moves
-- KEYS  1: tag of the queue
-- ARGV  1: now   2: msgpack [number or own id, …]
-- Returns {woken, due, answer, …}: {done?, state}, done 1 when it is cancelled or its worker was asked; {-1}: not here.
local answers = { 0, false }
for i, name in ipairs(decode(ARGV[2])) do
  local seq = #name == 16 and name or call('HGET', K .. 'own', name)
  local row = seq and call('HGET', K .. 'm', seq)
  if not row then
    answers[2 + i] = { -1 }
  else
    local x = place_of(seq)
    if x[1] == READY or x[1] == DELAYED or x[1] == HELD then
      guard()
      withdraw(seq, row, x)
      finish_as(CANCELLED, seq, row, x[2], '')
      note('cancel', CANCELLED, seq, x[2])
      answers[2 + i] = { 1, CANCELLED }
    elseif x[1] == LEASED then
      x[6] = 1
      call('HSET', K .. 'x', seq, encode(x))
      note('ask_cancel', LEASED, seq, x[2])
      answers[2 + i] = { 1, LEASED }
    else
      answers[2 + i] = { x[1] == CANCELLED and 1 or 0, x[1] }
    end
  end
end
finish()
answers[1], answers[2] = woken, due
return answers
