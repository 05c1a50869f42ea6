-- trim: remove ended messages, results, spent idempotency keys and journal entries past their time.
-- needs: base blocks runs journal moves
-- KEYS  1: tag of the queue
-- ARGV  1: now   2: limit (0: only say how much there is)   3: how long ended messages are kept   4: how long the
--       journal is kept
--       5: offset up to which all readers of the journal have it, or ''   6: how far to look when only asked
-- Returns how much was removed, or (with limit 0) could be, up to ARGV 6.
-- Journal entries past what the readers have stay, and messages that ended past it.
-- Needs no memory, so that it also works when there is none left.
local limit, before, journal_before = tonumber(ARGV[2]), now - tonumber(ARGV[3]), now - tonumber(ARGV[4])
local read = tonumber(ARGV[5])
local dry = limit == 0
local left = dry and tonumber(ARGV[6]) or limit
local most = left

local function old(index, at)
  return left > 0 and call('ZRANGEBYSCORE', K .. index, '-inf', at, 'LIMIT', 0, left) or {}
end

local function allowed(seqs) -- of those that ended, what the readers have
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
  local spent = old(index, now)
  left = left - #spent
  if not dry and #spent > 0 then
    many('HDEL', name, spent)
    many('ZREM', index, spent)
  end
end
local quiet = old('pace', now) -- groups that have saved up all their tokens
left = left - #quiet
if not dry and #quiet > 0 then many('ZREM', 'pace', quiet) end
if left > 0 and places_now() and pace > 0 then -- groups that a clock which was ahead has put off get the times of now
  local latest = '(' .. whole(now + burst * pace)
  local ahead = call('ZRANGEBYSCORE', K .. 'pace', latest, '+inf', 'LIMIT', 0, left)
  left = left - #ahead
  if not dry and #ahead > 0 and type(redis.pcall('HSET', K .. 'n', 'at', now)) == 'number' then -- else they wait for memory
    for _, lane in ipairs(ahead) do retime(lane, seats_of(lane)) end
  end
end
if left > 0 then
  local last, count = nil, 0
  for _, entry in ipairs(call('XRANGE', K .. 'j', '-', '+', 'COUNT', left)) do
    local offset = tonumber(entry[1]:match('^%d+'))
    if tonumber(entry[2][2]) > journal_before or (read and offset > read) then break end
    last, count = offset, count + 1
  end
  if last and not dry then call('XTRIM', K .. 'j', 'MINID', string.format('%.0f-0', last + 1)) end
  left = left - count
end
return most - left
