-- trim_reservations: return the own ids (o) and id prefixes (s) to check. Removes expired idempotency keys (i), which had
-- reservations when they were unique in their tenant.
-- needs: base
-- KEYS  1: tag of the tenant
-- ARGV  1: now   2: limit (0: only count)   3: limit of the count   4: time until the others are checked again
-- Returns how many (with limit 0), or {number removed, kind .. name, queue, token, kind .. name, …}
local limit = tonumber(ARGV[2])
local spent = call('ZRANGEBYSCORE', K .. 'names.until', '-inf', now, 'LIMIT', 0, limit > 0 and limit or tonumber(ARGV[3]))
if limit == 0 then return #spent end
local gone, answer = {}, { 0 }
for i, raw in ipairs(fetch('names', spent)) do
  local field = spent[i]
  if raw and field:sub(1, 1) ~= 'i' then
    local entry = decode(raw)
    local k = #answer
    answer[k + 1], answer[k + 2], answer[k + 3] = field, entry[2], entry[3]
    call('ZADD', K .. 'names.until', now + tonumber(ARGV[4]), field)
  else
    gone[#gone + 1] = field
  end
end
many('HDEL', 'names', gone)
many('ZREM', 'names.until', gone)
answer[1] = #gone
return answer
