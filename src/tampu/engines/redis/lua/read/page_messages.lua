-- page_messages: messages of one state in the order of its index, after a cursor. Writes nothing.
-- needs: base blocks runs index_pages
-- KEYS  1: tag of the queue
-- ARGV  1: now   2: index   3: limit   4: member it starts after, or ''   5: its score, for an index by time
-- Returns {member, score, m, x, e, member, …}
local found, seqs = members(ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5])
local rows = {}
local messages, statuses, errors = fetch_each('m', seqs), fetch_each('x', seqs), fetch('e', seqs)
for i = 1, #seqs do
  local k = #rows
  rows[k + 1], rows[k + 2] = found[2 * i - 1], found[2 * i]
  rows[k + 3], rows[k + 4], rows[k + 5] = messages[i], statuses[i], errors[i]
end
return rows
