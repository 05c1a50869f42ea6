-- trim: remove expired data: ended messages, results, idempotency keys and journal entries.
-- needs: base blocks runs journal moves
-- KEYS  1: tag of the queue
-- ARGV  1: now   2: limit (0: only count)   3: how long ended messages are kept   4: how long the journal is kept
--       5: journal offset that all readers have reached, or ''   6: limit of the count   7: 1: keep results
-- Returns how much was removed, or (with limit 0) could be, up to ARGV 6.
-- Keeps journal entries after that offset, and messages that ended after it.
-- Allocates no memory, so that it also works when the server is out of memory.
local limit, before, journal_before = tonumber(ARGV[2]), now - tonumber(ARGV[3]), now - tonumber(ARGV[4])
local read = tonumber(ARGV[5])
local dry = limit == 0
local left = dry and tonumber(ARGV[6]) or limit
local most = left

local function old(index, at)
  return left > 0 and call('ZRANGEBYSCORE', K .. index, '-inf', at, 'LIMIT', 0, left) or {}
end

local function allowed(seqs) -- only messages whose end all readers have seen
  if not read or read >= tonumber(call('HGET', K .. 'n', 'end') or 0) then return seqs end
  local found = {}
  for i, x in ipairs(fetch_each('x', seqs)) do
    if decode(x)[6] <= read then found[#found + 1] = seqs[i] end
  end
  return found
end

for _, index in ipairs({ 'done', 'cancelled', 'expired' }) do
  local seqs = allowed(old(index, before))
  left = left - #seqs
  if not dry and #seqs > 0 then
    for i, row in ipairs(fetch_each('m', seqs)) do forget(seqs[i], row) end
    many('ZREM', index, seqs)
  end
end
local SPENT = { kept = 'r', ['idem.until'] = 'idem', ['void.until'] = 'void', ['loaded.until'] = 'loaded' }
for index, name in pairs(SPENT) do
  local spent = name == 'r' and ARGV[7] == '1' and {} or old(index, now)
  left = left - #spent
  if not dry and #spent > 0 then
    many('HDEL', name, spent)
    many('ZREM', index, spent)
  end
end
local quiet = old('pace', now) -- groups whose tokens are all refilled
left = left - #quiet
if not dry and #quiet > 0 then many('ZREM', 'pace', quiet) end
if left > 0 and group_slots() and rate_us > 0 then -- groups delayed by a clock that was ahead get new times
  local latest = '(' .. text_of(now + burst * rate_us)
  local ahead = call('ZRANGEBYSCORE', K .. 'pace', latest, '+inf', 'LIMIT', 0, left)
  left = left - #ahead
  -- Out of memory: the next trim tries again.
  if not dry and #ahead > 0 and type(redis.pcall('HSET', K .. 'n', 'at', now)) == 'number' then
    for _, group in ipairs(ahead) do retime(group, holders_of(group)) end
  end
end
local function age(entry) -- 'old', 'young', or 'ahead': written by a clock that was ahead, so older than what follows it
  local at = tonumber(entry[2][2])
  return at > now and 'ahead' or at > journal_before and 'young' or 'old'
end
if left > 0 then
  local last, count, looked, offset, seen = nil, 0, 0, 0, 'old'
  for i, entry in ipairs(call('XRANGE', K .. 'j', '-', '+', 'COUNT', left)) do
    local at = tonumber(entry[1]:match('^%d+'))
    seen = age(entry)
    if seen == 'young' or (read and at > read) then break end
    offset, looked = at, i
    if seen == 'old' then last, count = at, i end
  end
  if looked > count then -- does anything old follow? Look further and further away, and at the end
    local step = left
    while seen == 'ahead' do
      local further = call('XRANGE', K .. 'j', string.format('%.0f', offset + step), '+', 'COUNT', 1)[1]
      seen = age(further or call('XREVRANGE', K .. 'j', '+', '-', 'COUNT', 1)[1])
      if not further and seen == 'ahead' then break end
      step = 2 * step
    end
    if seen == 'old' then last, count = offset, looked end
  end
  if last and not dry then call('XTRIM', K .. 'j', 'MINID', string.format('%.0f-0', last + 1)) end
  left = left - count
end
return most - left
