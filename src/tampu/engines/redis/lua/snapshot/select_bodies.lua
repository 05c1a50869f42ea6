-- select_bodies: messages by number, up to a size. Writes nothing.
-- needs: base blocks
-- KEYS  1: tag of the queue
-- ARGV  1: now   2: bytes   3: concatenated numbers
-- Returns {m, m, …}: at least one; ends with the one that reaches the size. false for a message that is not here
local left, seqs = tonumber(ARGV[2]), {}
for i = 1, #ARGV[3], 16 do
  local seq = ARGV[3]:sub(i, i + 15)
  seqs[#seqs + 1] = seq
  left = left - call('HSTRLEN', key_of('m', seq), seq)
  if left <= 0 then break end
end
return fetch_each('m', seqs)
