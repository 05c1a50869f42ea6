-- reserve_id_prefix: record which queue has the own ids with one prefix.
-- needs: base
-- KEYS  1: tag of the tenant
-- ARGV  1: now   2: queue   3: token   4: id prefix   5: voided token, or ''   6: time until the next check
--       7: msgpack [number, …]
-- Returns {1, token, number, queue, token, …}: this queue has it, but other queues have these ids;
--       or {0, queue, token}: another queue has it
-- `names`: see reserve.lua
local queue, begin = ARGV[2], ARGV[4]
local raw = call('HGET', K .. 'names', 's' .. begin)
local entry = raw and decode(raw)
if entry and entry[3] == ARGV[5] then entry = nil end
if entry and entry[2] ~= queue then return { 0, entry[2], entry[3] } end
local token = entry and entry[3] or ARGV[3]
local till = now + tonumber(ARGV[6])
call('HSET', K .. 'names', 's' .. begin, encode({ till, queue, token }))
call('ZADD', K .. 'names.until', till, 's' .. begin)
local numbers, fields, answer = decode(ARGV[7]), {}, { 1, token }
for i, n in ipairs(numbers) do fields[i] = 'o' .. begin .. string.format('%010x', n) end
for i, known in ipairs(fetch('names', fields)) do
  local other = known and decode(known)
  if other and other[2] ~= queue then
    local k = #answer
    answer[k + 1], answer[k + 2], answer[k + 3] = numbers[i], other[2], other[3]
  end
end
return answer
