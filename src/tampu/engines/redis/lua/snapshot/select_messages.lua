-- select_messages: whole messages, as they are now. Writes nothing.
-- needs: base blocks find_numbers
-- KEYS  1: tag of the queue
-- ARGV  1: now   2: msgpack [number or own id, …]
-- Returns {number, m, x, e (last error), r (result), number, …}, without those that are not here
local seqs, answer = numbers_of(decode(ARGV[2])), {}
local rows, statuses, errors, results = fetch_each('m', seqs), fetch_each('x', seqs), fetch('e', seqs), fetch('r', seqs)
for i, seq in ipairs(seqs) do
  if rows[i] then
    local k = #answer
    answer[k + 1], answer[k + 2], answer[k + 3], answer[k + 4], answer[k + 5] = seq, rows[i], statuses[i], errors[i], results[i]
  end
end
return answer
