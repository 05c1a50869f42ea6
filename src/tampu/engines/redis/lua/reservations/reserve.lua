-- reserve: record which queue has an own id. The first queue in a tenant wins.
-- needs: base
-- KEYS  1: tag of the tenant
-- ARGV  1: now   2: queue   3: token   4: time until the next check   5: msgpack [[id, voided token or ''], …]
-- Returns {answer, …}: {1, token} this queue has it; {0, queue, token} another queue has it
-- `names`: 'o' .. id -> [until, queue, token]; by time in `names.until`. Only the queue knows the message of an id.
local queue, token, till, answers = ARGV[2], ARGV[3], now + tonumber(ARGV[4]), {}
for i, item in ipairs(decode(ARGV[5])) do
  local id, voided = unpack(item)
  local field = 'o' .. id
  local raw = call('HGET', K .. 'names', field)
  local entry = raw and decode(raw)
  if entry and entry[3] == voided then entry = nil end
  if not entry and id:sub(15, 15) == '8' then -- its prefix may be reserved by a load
    raw = call('HGET', K .. 'names', 's' .. id:sub(1, 26))
    local prefix_entry = raw and decode(raw)
    if prefix_entry and prefix_entry[2] ~= queue and prefix_entry[3] ~= voided then entry = prefix_entry end
  end
  if entry and entry[2] ~= queue then
    answers[i] = { 0, entry[2], entry[3] }
  else
    local own_token = entry and entry[3] or token
    call('HSET', K .. 'names', field, encode({ till, queue, own_token }))
    call('ZADD', K .. 'names.until', till, field)
    answers[i] = { 1, own_token }
  end
end
return answers
