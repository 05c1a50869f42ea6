-- ack: settle leases as done, without a result. The most common batch of settle.
-- needs: base blocks runs journal moves
-- KEYS  1: tag of the queue
-- ARGV  1: now   2: concatenated numbers, 16 digits each   3: msgpack: lease number (one, or one each)
-- Returns {newly_ready, due, one letter each: d done, l lease lost, then position and own id of those that have one}
local seqs, leases = {}, decode(ARGV[3])
local count = 0
for i = 1, #ARGV[2], 16 do
  count = count + 1
  seqs[count] = sub(ARGV[2], i, i + 15)
end
local answers, done, attempts, memo, seen, owns = {}, {}, {}, {}, {}, {}
local found, one_lease, ended_count = fetch_each('x', seqs), type(leases) == 'string' and leases, 0
for i = 1, count do
  local raw, seq, lease = found[i], seqs[i], one_lease or leases[i]
  local x = raw and memo[raw]
  if raw and not x then
    x = decode(raw)
    memo[raw] = x
  end
  if seen[seq] then
    answers[i] = seen[seq] == lease and 'd' or 'l'
  elseif x and x[1] == LEASED and x[3] == lease then
    answers[i], seen[seq] = 'd', lease
    ended_count = ended_count + 1
    done[ended_count], attempts[ended_count] = seq, x[2]
  else
    answers[i] = x and x[1] == DONE and x[3] == 'a' .. lease and 'd' or 'l'
  end
  if answers[i] == 'd' and is_own(seq) then owns[#owns + 1], owns[#owns + 2] = i, own_id(seq) end
end
if #done > 0 then
  guard()
  many('ZREM', 'leased', done)
  local statuses, ended = {}, {}
  local same_attempts = folded(attempts)
  local at = text_of(now)
  for i = 1, ended_count do ended[2 * i - 1], ended[2 * i] = at, done[i] end
  many('ZADD', 'done', ended)
  if #owns > 0 then
    for i, seq in ipairs(done) do note('ack', DONE, seq, attempts[i]) end
  else
    local r = new_record('ack', DONE)
    r.seqs, r.attempts = done, same_attempts
  end
  if call('EXISTS', K .. 'lane') == 1 then
    leave_groups(done, fetch_each('m', done))
  end
  local last = finish()
  local same = one_lease and type(same_attempts) == 'number'
    and encode({ DONE, same_attempts, 'a' .. one_lease, now, '', last })
  for i = 1, ended_count do
    local seq = done[i]
    statuses[2 * i - 1], statuses[2 * i] = seq, same or encode({ DONE, attempts[i], 'a' .. seen[seq], now, '', last })
  end
  write_statuses(statuses)
end
local answer = { newly_ready, due, table.concat(answers) }
for i, value in ipairs(owns) do answer[3 + i] = value end
return answer
