-- unit_check: whether a unit would be refused here. Writes nothing.
-- needs: base blocks runs journal moves
-- KEYS  1: tag of the queue or of the store
-- ARGV  1: now   2: msgpack [[number, lease, id or nil], …]: leases that must be current   3: msgpack [number or own id, …] to cancel   4: how, as `cancel` takes it   5: as 3, to free
--       6: msgpack [[key ending (kind:tenant), name, version or '', …], …]: documents
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
local function status_by_name(name)
  local seq = #name == 16 and name or call('HGET', K .. 'own', name)
  return seq and row_of(seq) and status_of(seq)
end
local how = decode(ARGV[4])
for i, name in ipairs(decode(ARGV[3])) do
  local x, dead = status_by_name(name), how[i].d
  if not x then return { 'cancel', i, -1 } end
  local may = x[1] == READY or x[1] == DELAYED or x[1] == HELD
  if dead then may = may or (x[1] == DEAD and x[5] == dead) else may = may or x[1] == LEASED or x[1] == CANCELLED end
  if not may then return { 'cancel', i, x[1], 0 } end
end
for i, name in ipairs(decode(ARGV[5])) do
  local x = status_by_name(name)
  if not x then return { 'release_held', i, -1 } end
  if x[1] ~= HELD or x[6] == 1 then return { 'release_held', i, x[1], x[1] == HELD and 1 or 0 } end
end
for i, item in ipairs(decode(ARGV[6])) do
  if item[3] ~= '' then
    local raw = call('HGET', K .. 'doc:' .. item[1], item[2])
    if (raw and tonumber(raw:match('^%d+')) or 0) ~= item[3] then return { 'documents', i } end
  end
end
return {}
