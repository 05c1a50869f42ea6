-- replay: dead messages run again, with attempts 0, the same number and the given max_attempts. An expiry that has passed
-- is removed.
-- needs: base blocks runs journal moves
-- KEYS  1: tag of the queue
-- ARGV  1: now   2: msgpack [number or own id, …]   3: msgpack [map, …] for each: m max_attempts, w who asked
--       for it
-- Returns {newly_ready, due, answer, …}: {1, state}, {0, the state it is in}; {-1}: not here.
local answers, how = { 0, false }, decode(ARGV[3])
for i, name in ipairs(decode(ARGV[2])) do
  local seq = #name == 16 and name or call('HGET', K .. 'own', name)
  local row = seq and row_of(seq)
  if not row then
    answers[2 + i] = { -1 }
  else
    local x = status_of(seq)
    if x[1] ~= DEAD then
      answers[2 + i] = { 0, x[1] }
    else
      guard()
      call('ZREM', K .. 'dead', seq)
      local created, most, extra = details(row)
      local flags, late = flags_of(row), extra and extra.e and extra.e <= now
      if late then
        extra.e = nil
        if not extra.k then flags = flags - 1 end
      end
      if late or most ~= how[i].m then
        local rest = extra and next(extra) and extra or nil
        row = with_head(rank_of(row), flags, created, how[i].m, rest, body_of(row))
        call('HSET', key_of('m', seq), seq, row)
      end
      restore_marks(seq, row)
      local to = admit(seq, rank_of(row), nil, 0, extra and extra.l)
      note('replay', to, seq, 0, how[i].w)
      answers[2 + i] = { 1, to }
    end
  end
end
finish()
answers[1], answers[2] = newly_ready, due
return answers
