-- purge: delete messages of one state, from the front of its index. Never leased ones.
-- needs: base blocks runs journal moves
-- KEYS  1: tag of the queue
-- ARGV  1: now   2: state   3: limit   4: who asked for it, or ''   5: dead ones that died by this time, or ''
--       6: msgpack [number or own id, …]: only these dead ones; or ''
-- Returns {newly_ready, due, how many}
local state, limit = tonumber(ARGV[2]), tonumber(ARGV[3])
local seqs = {}
if ARGV[6] ~= '' then
  local there = {}
  for _, name in ipairs(decode(ARGV[6])) do
    local seq = #name == 16 and name or call('HGET', K .. 'own', name)
    if seq and not there[seq] and #seqs < limit and call('ZSCORE', K .. INDEX[state], seq) then
      there[seq] = true
      seqs[#seqs + 1] = seq
    end
  end
else
  local members
  if state == READY then
    members = spread(heads(limit), limit)
  elseif ARGV[5] ~= '' then
    members = call('ZRANGEBYSCORE', K .. INDEX[state], '-inf', ARGV[5], 'LIMIT', 0, limit)
  else
    members = call('ZRANGE', K .. INDEX[state], 0, limit - 1)
  end
  for i, member in ipairs(members) do seqs[i] = member:sub(-16) end
end
if #seqs > 0 then guard() end
local gone = fetch_each('m', seqs)
for i, row in ipairs(gone) do
  local seq = seqs[i]
  local x = status_of(seq)
  if state == READY or state == DELAYED or state == HELD then
    withdraw(seq, row, x)
  else
    call('ZREM', K .. INDEX[state], seq)
  end
  note('purge', nil, seq, x[2], ARGV[4])
end
leave_groups(seqs, gone)
for i, row in ipairs(gone) do forget(seqs[i], row) end
finish()
return { newly_ready, due, #seqs }
