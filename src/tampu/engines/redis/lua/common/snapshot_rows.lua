-- The parts of messages that may change, for a snapshot of a queue: number, x ('' if it is ready and never moved, false
-- if it is gone), number of failed attempts, and its expiry if it is dead (a replay may remove that), else ''.
local function append_statuses(answer, seqs)
  for i, raw in ipairs(fetch_each('x', seqs)) do
    local k, seq, failures, expires = #answer, seqs[i], 0, ''
    if raw then
      local failed = call('HGET', K .. 'f', seq)
      if failed then failures = struct.unpack('>I4', failed, 2) end
      if decode(raw)[1] == DEAD then
        local row = row_of(seq)
        if flags_of(row) % 2 == 1 then
          local at = extra_of(row).e
          if at then expires = text_of(at) end
        end
      end
    elseif call('HEXISTS', key_of('m', seq), seq) == 1 then
      raw = ''
    end
    answer[k + 1], answer[k + 2], answer[k + 3], answer[k + 4] = seq, raw, failures, expires
  end
end
