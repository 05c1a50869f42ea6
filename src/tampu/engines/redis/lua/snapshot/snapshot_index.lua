-- snapshot_index: the changing parts of messages, for a page of one index of live messages. Writes nothing.
-- needs: base blocks runs journal moves snapshot_rows
-- KEYS  1: tag of the queue
-- ARGV  1: now   2: index   3: where to continue, '0' to begin   4: about how many
-- Returns {where to continue or '0', msgpack [run, …], number, x, failures, expires, number, …}; see snapshot_rows.lua.
--       Runs are as in `ready` (see runs.lua); none of their messages has moved.
-- Finds every message that is in the index the whole time, whatever happens to others. `ready` is read in lexical order,
-- because the rest of a run sorts after what was taken from it; the others by a scan, because a time may change.
local index, seqs, runs, cursor = ARGV[2], {}, {}, '0'
if index == 'ready' then
  local after = ARGV[3] == '0' and '-' or '(' .. ARGV[3]
  local found = call('ZRANGEBYLEX', K .. index, after, '+', 'LIMIT', 0, ARGV[4])
  for _, member in ipairs(found) do
    if run_of(member) then runs[#runs + 1] = member else seqs[#seqs + 1] = sub(member, -16) end
  end
  if #found == tonumber(ARGV[4]) then cursor = found[#found] end
else
  local found = call('ZSCAN', K .. index, ARGV[3], 'COUNT', ARGV[4])
  cursor = found[1]
  for i = 1, #found[2], 2 do seqs[#seqs + 1] = found[2][i] end
end
local answer = { cursor, encode(runs) }
append_statuses(answer, seqs)
return answer
