-- release_held: held messages continue. Those that wait for their turn in a group continue by themselves.
-- needs: base blocks runs journal moves
-- KEYS  1: tag of the queue
-- ARGV  1: now   2: msgpack [number or own id, …]   3: msgpack [map, …] for each: b index of its new body (from 1),
--       t the type of that, c hash of its tenant and correlation id, w who asked for it, h: only if it is held for this reason   4 …: packed bodies
-- Returns {newly_ready, due, answer, …}: {1, state}, {0, the state it is in, whether it waits for its turn}; {-1}: not here.
local answers, how = { 0, false }, decode(ARGV[3])
for i, name in ipairs(decode(ARGV[2])) do
  local seq = #name == 16 and name or call('HGET', K .. 'own', name)
  local row = seq and row_of(seq)
  if not row then
    answers[2 + i] = { -1 }
  else
    local x = status_of(seq)
    if x[1] ~= HELD or x[6] == 1 or (how[i].h and x[5] ~= how[i].h) then
      answers[2 + i] = { 0, x[1], x[1] == HELD and x[6] == 1 and 1 or 0 }
    else
      guard()
      if how[i].b then replace_body(seq, ARGV[3 + how[i].b], how[i].t, how[i].w, how[i].c) end
      call('ZREM', K .. 'held', seq)
      local to = admit(seq, rank_of(row), x[4], x[2], extra_of(row).l)
      note('free', to, seq, x[2], how[i].w)
      answers[2 + i] = { 1, to }
    end
  end
end
finish()
answers[1], answers[2] = newly_ready, due
return answers
