-- select_bodies: messages by their numbers, as many of the first as fit. Writes nothing.
-- needs: base blocks
-- KEYS  1: tag of the queue
-- ARGV  1: now   2: bytes that fit   3: the numbers in a row
-- Returns {m, m, …}: of at least one, and no more after the one that brings it over; false for one that is not here
local left, seqs = tonumber(ARGV[2]), {}
for i = 1, #ARGV[3], 16 do
  local seq = ARGV[3]:sub(i, i + 15)
  seqs[#seqs + 1] = seq
  left = left - call('HSTRLEN', key_of('m', seq), seq)
  if left <= 0 then break end
end
return fetch_each('m', seqs)
