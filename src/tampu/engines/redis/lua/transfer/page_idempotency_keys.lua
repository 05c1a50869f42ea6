-- page_idempotency_keys: idempotency keys of a queue whose window is open. Writes nothing.
-- needs: base blocks runs journal moves
-- KEYS  1: tag of the queue
-- ARGV  1: now   2: cursor of HSCAN   3: about how many
-- Returns {next cursor, key, until, digest, number, own id or '', key, …}
local page = call('HSCAN', K .. 'idem', ARGV[2], 'COUNT', ARGV[3])
local found = { page[1] }
for i = 1, #page[2], 2 do
  local entry = decode(page[2][i + 1])
  if entry[1] > now then
    local row, k = row_of(entry[3]), #found
    local own = row and extra_of(row).o or entry[4]
    found[k + 1], found[k + 2], found[k + 3], found[k + 4], found[k + 5] = page[2][i], entry[1], entry[2], entry[3], own
  end
end
return found
