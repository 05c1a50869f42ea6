-- Work in this queue that is due by time: at most `limit` of each kind.
local function head(index)
  return tonumber(call('ZRANGE', K .. index, 0, 0, 'WITHSCORES')[2])
end

local function past(index, limit)
  return call('ZRANGEBYSCORE', K .. index, '-inf', now, 'LIMIT', 0, limit)
end

local function expire(limit)
  local seqs = past('expiry', limit)
  local gone = fetch_each('m', seqs)
  for i, row in ipairs(gone) do
    local seq = seqs[i]
    local x = status_of(seq)
    withdraw(seq, row, x)
    expire_as(seq, row, x[2])
  end
  leave_groups(seqs, gone)
  return #seqs
end

-- Writes no settle marker: a late settle must not be taken for a repeated one.
local back, dead = 0, 0
local function reap(limit)
  local seqs = past('leased', limit)
  for i, row in ipairs(fetch_each('m', seqs)) do
    local seq = seqs[i]
    local x = status_of(seq)
    local attempts, worker = x[2], x[5]
    local _, most = details(row)
    local ended = 'lease_until=' .. call('ZSCORE', K .. 'leased', seq) -- model.journal.lease_end
    call('ZREM', K .. 'leased', seq)
    failed(seq, attempts, 'lease_expired', worker)
    if x[6] == 1 then
      finish_as(CANCELLED, seq, row, attempts, '')
      note('cancel', CANCELLED, seq, attempts, worker, ended)
    elseif attempts >= most then
      finish_as(DEAD, seq, row, attempts, '', 'lease_expired')
      note('reap', DEAD, seq, attempts, worker, ended)
      dead = dead + 1
    else
      local to = return_to_queue(seq, rank_of(row), attempts, '', group_of(row))
      restore_marks(seq, row)
      note('reap', to, seq, attempts, worker, ended)
      back = back + 1
    end
  end
  return #seqs
end

local function promote(limit)
  local seqs = past('delayed', limit)
  for i, row in ipairs(fetch_each('m', seqs)) do
    local seq = seqs[i]
    local x = status_of(seq)
    call('ZREM', K .. 'delayed', seq)
    note('promote', resume(seq, rank_of(row), x[2], x[3], extra_of(row).l), seq, x[2])
  end
  return #seqs
end

local function next_due()
  local at = false
  for _, index in ipairs({ 'expiry', 'leased', 'delayed' }) do
    local first = head(index)
    if first and (not at or first < at) then at = first end
  end
  return at
end

-- {messages moved, of them expired leases that are ready again, and expired leases that are dead}
local function sweep(limit)
  local first = next_due()
  if not first or first > now then return { 0, 0, 0 } end
  guard()
  local moved = expire(limit) + reap(limit) + promote(limit)
  return { moved, back, dead }
end
