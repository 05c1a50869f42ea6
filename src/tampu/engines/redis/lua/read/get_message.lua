-- get_message: one whole message. Writes nothing.
-- needs: base blocks
-- KEYS  1: tag of the queue
-- ARGV  1: now   2: number or own id
-- Returns {number, m, x, f (failures), r (result), e (last error), now}, or nil
local seq = #ARGV[2] == 16 and ARGV[2] or call('HGET', K .. 'own', ARGV[2])
local row = seq and row_of(seq)
if not row then return false end
return { seq, row, raw_status(seq), call('HGET', K .. 'f', seq), call('HGET', K .. 'r', seq),
  call('HGET', K .. 'e', seq), now }
