-- ranks: what decides about the order, of some messages. Writes nothing.
-- needs: base journal moves
-- KEYS  1: tag of the queue
-- ARGV  1: now   2: cursor of HSCAN   3: about how many
-- Returns {next cursor, number, rank, created, priority, deadline, number, …}
local page = call('HSCAN', K .. 'm', ARGV[2], 'COUNT', ARGV[3])
local found = { page[1] }
for i = 1, #page[2], 2 do
  local seq, row = page[2][i], page[2][i + 1]
  local created, _, extra = details(row)
  local p = extra and extra.p or { 0, false }
  local k = #found
  found[k + 1], found[k + 2], found[k + 3], found[k + 4], found[k + 5] = seq, rank_of(row), created, p[1], p[2]
end
return found
