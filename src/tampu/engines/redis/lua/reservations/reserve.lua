-- reserve: record which queue has a name (an idempotency key or an own id). The first queue in a tenant wins.
-- needs: base
-- KEYS  1: tag of the tenant
-- ARGV  1: now   2: queue   3: token   4: msgpack [[kind, name, how long, voided token or ''], …]
-- Returns {answer, …}: {until, token} this queue has it; {0} no queue has it, and it is not stored;
--       {-1, queue, token} another queue has it
-- `names`: kind .. name -> [until, queue, token]; by time in `names.until`. Only the queue knows the message of a name.
local queue, token, answers = ARGV[2], ARGV[3], {}
for i, item in ipairs(decode(ARGV[4])) do
  local kind, name, window, voided = unpack(item)
  local field = kind .. name
  local raw = call('HGET', K .. 'names', field)
  local entry = raw and decode(raw)
  if entry and ((kind == 'i' and entry[1] <= now) or entry[3] == voided) then entry = nil end
  if not entry and kind == 'o' and name:sub(15, 15) == '8' then -- its prefix may be reserved by a load
    raw = call('HGET', K .. 'names', 's' .. name:sub(1, 26))
    local prefix_entry = raw and decode(raw)
    if prefix_entry and prefix_entry[2] ~= queue and prefix_entry[3] ~= voided then entry = prefix_entry end
  end
  if entry and entry[2] ~= queue then
    answers[i] = { -1, entry[2], entry[3] }
  elseif not entry and window == 0 then
    answers[i] = { 0 }
  else
    local till = math.max(entry and entry[1] or 0, now + window)
    local own_token = entry and entry[3] or token
    call('HSET', K .. 'names', field, encode({ till, queue, own_token }))
    call('ZADD', K .. 'names.until', till, field)
    answers[i] = { till, own_token }
  end
end
return answers
