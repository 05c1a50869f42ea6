-- page_ranks: what decides the order of some messages. Writes nothing.
-- needs: base blocks runs journal moves
-- KEYS  1: tag of the queue
-- ARGV  1: now   2: block, or '' to begin   3: cursor of HSCAN in it   4: about how many
-- Returns {next block, next cursor ('' and '0' at the end), number, rank, created, priority, deadline, number, …}
local block = ARGV[2]
local page = call('HSCAN', K .. 'm' .. (block == '' and '' or ':' .. block), ARGV[3], 'COUNT', ARGV[4])
if page[1] == '0' then
  block = call('ZRANGEBYLEX', K .. 'blocks', block == '' and '-' or '(' .. block, '+', 'LIMIT', 0, 1)[1] or ''
end
local found = { block, page[1] }
for i = 1, #page[2], 2 do
  local seq, row = page[2][i], page[2][i + 1]
  local created, _, extra = details(row)
  local p = extra and extra.p or { 0, false }
  local k = #found
  found[k + 1], found[k + 2], found[k + 3], found[k + 4], found[k + 5] = seq, rank_of(row), created, p[1], p[2]
end
return found
