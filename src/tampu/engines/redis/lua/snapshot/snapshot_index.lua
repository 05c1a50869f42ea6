-- snapshot_index: what may change of messages, for a part of one index of messages that have not ended. Writes nothing.
-- needs: base blocks runs journal moves snapshot_rows
-- KEYS  1: tag of the queue
-- ARGV  1: now   2: index   3: where to continue, '0' to begin   4: about how many
-- Returns {where to continue or '0', msgpack [run, …], number, x, failures, expires, number, …}; see snapshot_rows.lua. Runs are as
--       they are in `ready`, rank 0, first number, *, how many; none of their messages has moved.
-- It meets every message that is in the index all the while, whatever happens to others. In `ready` by the order of the
-- texts, for what is left of a run comes after what was taken from it; in the others, where a time may change, by a scan.
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
tell_places(answer, seqs)
return answer
