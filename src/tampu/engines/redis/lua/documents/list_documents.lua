-- list_documents: the documents of one kind and tenant whose names begin with a prefix, by name. Writes nothing.
-- needs: base
-- KEYS  1: tag of the store
-- ARGV  1: now   2: key ending (kind:tenant)   3: prefix   4: only after this name   5: at most
-- Returns {name, version:value, …}. Looks at all names of the kind, and only at the values that it returns.
local prefix, after, most, names = ARGV[3], ARGV[4], tonumber(ARGV[5]), {}
for _, name in ipairs(call('HKEYS', K .. 'doc:' .. ARGV[2])) do
  if sub(name, 1, #prefix) == prefix and name > after then names[#names + 1] = name end
end
table.sort(names)
for i = #names, most + 1, -1 do names[i] = nil end
local answer = {}
for i, value in ipairs(fetch('doc:' .. ARGV[2], names)) do
  answer[2 * i - 1], answer[2 * i] = names[i], value
end
return answer
