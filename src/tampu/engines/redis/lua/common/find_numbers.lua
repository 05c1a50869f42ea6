-- The numbers of messages that are called by their number or by the id their user gave; of ids that are not here, none.
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
