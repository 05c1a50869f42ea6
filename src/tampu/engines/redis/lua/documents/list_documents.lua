-- list_documents: the documents of one kind and tenant whose names are in a range, by name.
-- needs: base
-- KEYS  1: tag of the store
-- ARGV  1: now   2: key ending (kind:tenant)   3, 4: the range, as ZRANGEBYLEX takes it   5: at most (-1: all)
-- Returns {name, version:value, …}
-- An earlier version stored documents without `docnames`; they are then made from the documents.
local key, by_name = K .. 'doc:' .. ARGV[2], K .. 'docnames:' .. ARGV[2]
if call('ZCARD', by_name) ~= call('HLEN', key) then
  call('DEL', by_name)
  for _, name in ipairs(call('HKEYS', key)) do call('ZADD', by_name, 0, name) end
end
local names, answer = call('ZRANGEBYLEX', by_name, ARGV[3], ARGV[4], 'LIMIT', 0, ARGV[5]), {}
for i, value in ipairs(fetch('doc:' .. ARGV[2], names)) do
  answer[2 * i - 1], answer[2 * i] = names[i], value
end
return answer
