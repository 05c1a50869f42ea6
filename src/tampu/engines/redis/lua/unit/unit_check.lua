-- unit_check: whether a unit would be refused here. Writes nothing.
-- needs: base blocks runs journal moves
-- KEYS  1: tag of the queue or of the store
-- ARGV  1: now   2: msgpack [[number, lease, id or nil], …]: leases that must be current   3: msgpack [number or own id, …] to cancel   4: the same, to free
--       5: msgpack [[key ending (kind:tenant), name, version or '', …], …]: documents
-- Returns {}, or what is refused: {'lease' | 'cancel' | 'release_held' | 'documents', index (from 1), state, 1 if the
--       message waits for its turn in its group}
for i, item in ipairs(decode(ARGV[2])) do
  local seq, lease, id = item[1], item[2], item[3]
  local raw = raw_status(seq)
  local x = raw and decode(raw)
  if not (x and x[1] == LEASED and x[3] == lease) or (id and is_own(seq) and own_id(seq) ~= id) then
    return { 'lease', i }
  end
end
for list, verb in ipairs({ 'cancel', 'release_held' }) do
  for i, name in ipairs(decode(ARGV[2 + list])) do
    local seq = #name == 16 and name or call('HGET', K .. 'own', name)
    local x = seq and row_of(seq) and status_of(seq)
    if not x then return { verb, i, -1 } end
    if verb == 'cancel' then
      if x[1] ~= READY and x[1] ~= DELAYED and x[1] ~= HELD and x[1] ~= LEASED and x[1] ~= CANCELLED then
        return { verb, i, x[1], 0 }
      end
    elseif x[1] ~= HELD or x[6] == 1 then
      return { verb, i, x[1], x[1] == HELD and 1 or 0 }
    end
  end
end
for i, item in ipairs(decode(ARGV[5])) do
  if item[3] ~= '' then
    local raw = call('HGET', K .. 'doc:' .. item[1], item[2])
    if (raw and tonumber(raw:match('^%d+')) or 0) ~= item[3] then return { 'documents', i } end
  end
end
return {}
