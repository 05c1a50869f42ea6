-- The numbers of messages given by number or own id. Own ids that are not in this queue are left out.
local function numbers_of(names)
  local seqs, owns = {}, {}
  for _, name in ipairs(names) do
    if #name == 16 then seqs[#seqs + 1] = name else owns[#owns + 1] = name end
  end
  for _, seq in ipairs(fetch('own', owns)) do
    if seq then seqs[#seqs + 1] = seq end
  end
  return seqs
end
