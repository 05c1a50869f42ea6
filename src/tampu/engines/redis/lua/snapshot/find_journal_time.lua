-- find_journal_time: the offset of a time in the journal, by reading entry after entry. Writes nothing.
-- needs: base
-- KEYS  1: tag of the queue
-- ARGV  1: now   2: 'since' or 'until'   3: the time   4: offset to continue from, or ''   5: limit of entries
-- Returns {1, offset}: 'since', the offset before the first entry at or after the time; 'until', the last offset of the
--       last entry before it. {0, offset}: continue from there. {1}: there is none.
local since, at, limit = ARGV[2] == 'since', tonumber(ARGV[3]), tonumber(ARGV[5])
local entries
if since then
  entries = call('XRANGE', K .. 'j', ARGV[4] == '' and '-' or ARGV[4] .. '-0', '+', 'COUNT', limit)
else
  entries = call('XREVRANGE', K .. 'j', ARGV[4] == '' and '+' or ARGV[4] .. '-0', '-', 'COUNT', limit)
end
local last
for _, entry in ipairs(entries) do
  local offset, n = entry[1]:match('^(%d+)-(%d+)$')
  local time = tonumber(entry[2][2])
  if since and time >= at then return { 1, string.format('%.0f', offset - n) } end
  if not since and time < at then return { 1, offset } end
  last = since and string.format('%.0f', offset + 1) or string.format('%.0f', offset - n + 1)
end
if #entries < limit then return { 1 } end
return { 0, last }
