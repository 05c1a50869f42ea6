-- find_correlated: the first messages of a queue with a correlation id, by number. Writes nothing.
-- needs: base blocks
-- KEYS  1: tag of the queue
-- ARGV  1: now   2: hash of tenant and correlation id   3: limit
-- Returns {number, m, x, e (last error), …}
local answer = {}
for _, member in ipairs(call('ZRANGEBYLEX', K .. 'correlated', '[' .. ARGV[2], '[' .. ARGV[2] .. '~', 'LIMIT', 0, ARGV[3])) do
  local seq = sub(member, -16)
  local row = row_of(seq)
  if row then
    answer[#answer + 1], answer[#answer + 2] = seq, row
    answer[#answer + 1], answer[#answer + 2] = raw_status(seq), call('HGET', K .. 'e', seq)
  end
end
return answer
