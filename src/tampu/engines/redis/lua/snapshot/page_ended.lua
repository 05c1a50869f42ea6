-- page_ended: messages that ended in a time range, oldest end first. Writes nothing.
-- needs: base blocks
-- KEYS  1: tag of the queue
-- ARGV  1: now   2: index   3: from   4: before, or '+inf'   5: how many to skip   6: limit
-- Returns {number, time, x, number, …}
local before = ARGV[4] == '+inf' and '+inf' or '(' .. ARGV[4]
local found = call('ZRANGEBYSCORE', K .. ARGV[2], ARGV[3], before, 'WITHSCORES', 'LIMIT', ARGV[5], ARGV[6])
local seqs, answer = {}, {}
for i = 1, #found, 2 do seqs[#seqs + 1] = found[i] end
for i, status in ipairs(fetch_each('x', seqs)) do
  local k = #answer
  answer[k + 1], answer[k + 2], answer[k + 3] = seqs[i], found[2 * i], status
end
return answer
