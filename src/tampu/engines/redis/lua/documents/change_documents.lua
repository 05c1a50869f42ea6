-- change_documents: write and remove documents, all or none.
-- needs: base
-- KEYS  1: tag of the store
-- ARGV  1: now   2: msgpack [[key ending (kind:tenant), name, version or '', 1 to write or 0 to delete, and for settings of
--       a queue: tenant/queue and its tail, the queue exists from then on], …]   3 …: the values of those that are written
-- Returns {new version, or for a delete 1 if it existed, …}; or {-1, index}: its version is another, nothing was changed
local items, answer, changed = decode(ARGV[2]), {}, false
for i, item in ipairs(items) do
  if item[3] ~= '' then
    local raw = call('HGET', K .. 'doc:' .. item[1], item[2])
    if (raw and tonumber(raw:match('^%d+')) or 0) ~= item[3] then return { -1, i } end
  end
end
local value = 3
for i, item in ipairs(items) do
  local key = K .. 'doc:' .. item[1]
  if item[4] == 1 then
    answer[i] = call('HINCRBY', K .. 'n', 'revision', 1)
    if item[5] then call('HSET', K .. 'queues', item[5], item[6] .. '+') end
    local new = call('HSET', key, item[2], string.format('%.0f:', answer[i]) .. ARGV[value])
    if new == 1 then call('ZADD', K .. 'docnames:' .. item[1], 0, item[2]) end
    value = value + 1
  else
    answer[i] = call('HDEL', key, item[2])
    call('ZREM', K .. 'docnames:' .. item[1], item[2])
    changed = changed or answer[i] == 1
  end
end
if changed then call('HINCRBY', K .. 'n', 'revision', 1) end
return answer
