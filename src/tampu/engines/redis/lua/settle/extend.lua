-- extend: set the end of leases to the given time from now. Not journaled.
-- needs: base blocks runs journal moves
-- KEYS  1: tag of the queue
-- ARGV  1: now   2: msgpack [[number, lease, lease time, id or nil], …]: an own id must be the message's
-- Returns {newly_ready, due, answer, …}: {until, whether cancel was requested}, or {0}: this is not the current lease.
local answers = { 0, false }
for i, item in ipairs(decode(ARGV[2])) do
  local seq, lease, lease_us, id = item[1], item[2], item[3], item[4]
  local raw = raw_status(seq)
  local x = raw and decode(raw)
  if x and x[1] == LEASED and x[3] == lease and not (id and is_own(seq) and own_id(seq) ~= id) then
    local till = now + lease_us
    if till < x[4] then falls_due(till) end
    x[4], x[7], x[8] = till, x[7] or false, now
    write_status(seq, x)
    call('ZADD', K .. 'leased', till, seq)
    answers[2 + i] = { till, x[6] }
  else
    answers[2 + i] = { 0 }
  end
end
answers[1], answers[2] = newly_ready, due
return answers
