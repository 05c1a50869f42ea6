-- claim: lease the first messages of the ready index. Before that, due delays and expired leases become ready.
-- needs: base blocks runs journal moves due_work
-- KEYS  1: tag of the queue
-- ARGV  1: now   2: limit   3: lease number (hex)   4: lease time   5: worker or ''   6: max_in_flight   7: rate a second
--       8: burst   9: how much to sweep first   10: 1 if groups have a rate: each message then costs a token of its group
-- Returns {newly_ready, due, swept (see sweep), lease until, concatenated numbers, attempts (one, or msgpack of all),
--       msgpack {position: last error} or '', m, m, …}; if nothing is claimed {newly_ready, due, swept}, and then the
--       microseconds until the rate allows one more if the rate is used up
-- Attempts + 1. Never a message past its expiry, never more than max_in_flight and the rate allow.
local limit, lease, lease_us, worker = tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4]), ARGV[5]
local in_flight, rate, burst = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local swept = sweep(tonumber(ARGV[9]))
local tokens
if in_flight > 0 then limit = math.min(limit, in_flight - call('ZCARD', K .. 'leased')) end
if rate > 0 then
  local kept = call('HMGET', K .. 'n', 'tokens', 'tokens_at')
  local since = tonumber(kept[2] or now)
  if since > now then -- written by a clock that was ahead: the rate must not stop until then
    call('HSET', K .. 'n', 'tokens_at', now)
    since = now
  end
  tokens = kept[1] and math.min(burst, kept[1] + (now - since) * rate / 1000000) or burst
  limit = math.min(limit, math.floor(tokens + 1e-9))
end

local seqs, rows, attempts, errors, again, taken, own = {}, {}, {}, {}, {}, 0, false
local function take(wanted)
  -- Not ZPOPMIN: returning its scores, which are all the same, costs as much as the members.
  local fresh, back, statuses, count, gone, less, rest = {}, {}, {}, 0, 0, 0, nil
  for _, member in ipairs(heads(wanted)) do
    if count == wanted then break end
    gone = gone + 1
    local prefix, no, size = run_of(member)
    if prefix then
      local part = math.min(size, wanted - count)
      for k = 0, part - 1 do fresh[count + 1 + k] = prefix .. format('%05x', no + 2 * k) end
      count = count + part
      if part < size then rest = run(prefix, no + 2 * part, size - part) end
      less = less + (part < size and part or size - 1)
    else
      local seq = sub(member, -16)
      count = count + 1
      fresh[count] = seq
      if #member == 48 then
        back[#back + 1], statuses[seq] = seq, true
      elseif sub(member, 1, 16) ~= FIFO then
        again[#again + 1] = seq
      end
    end
  end
  if count > 0 then call('ZREMRANGEBYRANK', K .. 'ready', 0, gone - 1) end
  if rest then call('ZADD', K .. 'ready', 0, rest) end
  more(-less)
  for i, raw in ipairs(fetch_each('x', back)) do
    statuses[back[i]] = decode(raw)
    again[#again + 1] = back[i]
  end
  local found, late, late_rows = fetch_each('m', fresh), {}, {}
  for i = 1, count do
    local seq, row = fresh[i], found[i]
    local x, flags = statuses[seq], byte(row, 19)
    local extra = flags % 2 == 1 and extra_of(row)
    if extra then drop_marks(seq, row) end
    own = own or flags % 8 >= 4
    if extra and extra.e and extra.e <= now then
      expire_as(seq, row, x and x[2] or 0)
      late[#late + 1], late_rows[#late_rows + 1] = seq, row
    else
      taken = taken + 1
      seqs[taken], rows[taken], attempts[taken] = seq, row, x and x[2] + 1 or 1
    end
  end
  leave_groups(late, late_rows)
  return count
end

local examined = 0
if limit > 0 and call('ZCARD', K .. 'ready') > 0 then
  guard()
  while taken < limit and examined < limit + 1000 do
    local found = take(limit - taken)
    examined = examined + found
    if found == 0 then break end
  end
  many('ZREM', 'aged', again)
end
if taken == 0 then
  finish()
  return { newly_ready, due, swept, tokens and tokens < 1 and math.max(1, math.ceil((1 - tokens) / rate * 1000000)) or nil }
end

local till = now + lease_us
local score = text_of(till)
local same_attempts = folded(attempts)
local row = type(same_attempts) == 'number' and encode({ LEASED, same_attempts, lease, till, worker, 0, now })
local leased, set = {}, {}
for i = 1, taken do
  local seq = seqs[i]
  local k = 2 * (taken - i) -- last first: a small sorted set is a list that Redis walks from its beginning
  leased[k + 1], leased[k + 2] = score, seq
  set[2 * i - 1], set[2 * i] = seq, row or encode({ LEASED, attempts[i], lease, till, worker, 0, now })
end
many('ZADD', 'leased', leased)
write_statuses(set)
if tokens then call('HSET', K .. 'n', 'tokens', tokens - taken, 'tokens_at', now) end
if own then
  for i, seq in ipairs(seqs) do note('claim', LEASED, seq, attempts[i], worker, nil, nil, extra_of(rows[i]).o) end
else
  local r = new_record('claim', LEASED, worker)
  r.seqs, r.attempts = seqs, same_attempts
end
local function spend(group, claimed) -- spend tokens of a group; its next messages get their times
  call('ZADD', K .. 'pace', text_of(math.max(spent_until(group), now) + #claimed * rate_us), group)
  local holders = holders_of(group)
  if group_slots() >= ANY then
    for _, seq in ipairs(claimed) do holders = without(holders, seq) end
  end
  fill_group(group, holders)
end
if ARGV[10] == '1' and group_slots() and rate_us > 0 then
  local groups, claimed = {}, {}
  for i, message in ipairs(rows) do
    local group = group_of(message)
    if group and not claimed[group] then
      groups[#groups + 1], claimed[group] = group, {}
    end
    if group then table.insert(claimed[group], seqs[i]) end
  end
  for _, group in ipairs(groups) do spend(group, claimed[group]) end
end
finish()
falls_due(till)
if #again > 0 then
  for i, error in ipairs(fetch('e', seqs)) do
    if error then errors[i] = error end
  end
end
local answer = { newly_ready, due, swept, till, table.concat(seqs),
  type(same_attempts) == 'number' and same_attempts or encode(same_attempts), next(errors) and encode(errors) or '' }
for i, message in ipairs(rows) do answer[7 + i] = message end
return answer
