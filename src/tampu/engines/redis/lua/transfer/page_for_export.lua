-- page_for_export: as page_messages, with everything another store needs of each message. Writes nothing.
-- needs: base blocks runs journal moves index_pages
-- KEYS  1: tag of the queue
-- ARGV  1: now   2: index   3: limit   4: member it starts after, or ''   5: its score, for an index by time
-- Returns {now, member, score, m, x, f (failures), r (result), 1 if it is the waiting message of its key, member, …}
local found, seqs = members(ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5])
local messages, statuses, failures, results = fetch_each('m', seqs), fetch_each('x', seqs), fetch('f', seqs), fetch('r', seqs)
local rows = { now }
for i, seq in ipairs(seqs) do
  local key = extra_of(messages[i]).k
  local k = #rows
  rows[k + 1], rows[k + 2], rows[k + 3], rows[k + 4] = found[2 * i - 1], found[2 * i], messages[i], statuses[i]
  rows[k + 5], rows[k + 6] = failures[i], results[i]
  rows[k + 7] = key and call('HGET', K .. 'key', key) == seq and 1 or 0
end
return rows
