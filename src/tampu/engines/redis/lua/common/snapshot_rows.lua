-- What may change of messages, for those who take a picture of a queue: number, x (or '' where it is ready and never
-- moved), how many attempts have failed, and when it expires if it is dead (a replay may take that away), else ''.
-- A message that is gone has false instead of x.
local function tell_places(answer, seqs)
  for i, raw in ipairs(fetch_each('x', seqs)) do
    local k, seq, failures, expires = #answer, seqs[i], 0, ''
    if raw then
      local failed = call('HGET', K .. 'f', seq)
      if failed then failures = struct.unpack('>I4', failed, 2) end
      if decode(raw)[1] == DEAD then
        local row = row_of(seq)
        if flags_of(row) % 2 == 1 then
          local at = extra_of(row).e
          if at then expires = whole(at) end
        end
      end
    elseif call('HEXISTS', key_of('m', seq), seq) == 1 then
      raw = ''
    end
    answer[k + 1], answer[k + 2], answer[k + 3], answer[k + 4] = seq, raw, failures, expires
  end
end
