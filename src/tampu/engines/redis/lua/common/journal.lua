-- Numbers and the journal. A number has 11 hexadecimal digits of milliseconds and 5 of a counter in steps of two. It
-- always grows, even when the clock goes back. Odd numbers mark messages with an own id (given by the user).
-- `n`: ms and no (the last number), block and size (the last block, and how many messages were put into it), end (the
-- last offset of the journal). `j`: the journal. The id of an entry is <last offset>-<number of transitions>, so offsets
-- have no gaps and an entry is found by offset.
local last_ms, last_no, numbers_changed, is_new
local block, block_size, block_changed, free_ms -- the last block; free_ms: no message has this millisecond or a later one
local BLOCK = 7000 -- messages per block, more if they came in one batch; its hash tables are full then
local newly_ready, due = 0, false -- how many became ready; the earliest time that something written here is due

local function load_numbers()
  if not last_ms then
    local n = call('HMGET', K .. 'n', 'ms', 'no', 'block', 'size')
    is_new = not n[1]
    last_ms, last_no = tonumber(n[1] or 0), tonumber(n[2] or 0)
    free_ms, block, block_size = last_ms + 1, n[3], tonumber(n[4] or BLOCK)
  end
end

local function series(count) -- assigns numbers within one millisecond; returns its digits and the first counter
  load_numbers()
  local ms, no = math.floor(now / 1000), 0
  if last_ms >= ms then
    ms, no = last_ms, last_no + 2
    if no + 2 * count > 0x100000 then ms, no = ms + 1, 0 end
  end
  last_ms, last_no, numbers_changed = ms, no + 2 * (count - 1), true
  return string.format('%011x', ms), no
end

local function number()
  local ms, no = series(1)
  return ms .. string.format('%05x', no)
end

local function block_for(prefix, count) -- the hash for messages whose numbers were just assigned
  local ms = tonumber(prefix, 16)
  if block_size >= BLOCK and ms >= free_ms then
    call('ZADD', K .. 'blocks', 0, prefix)
    if block and call('EXISTS', K .. 'm:' .. block) == 0 then call('ZREM', K .. 'blocks', block) end
    block, block_size = prefix, 0
  end
  free_ms, block_size, block_changed = math.max(free_ms, ms + 1), block_size + count, true
  ends_with[prefix] = block and ':' .. block or ''
  return 'm' .. ends_with[prefix]
end

local function falls_due(at)
  if not due or at < due then due = at end
end

local records, open_records, recorded = {}, {}, {}

local function is_own(seq) -- an odd digit: 57 is '9', and 'b' is an even byte
  local last = byte(seq, 16)
  return (last % 2 == 1) == (last <= 57)
end

local function own_id(seq)
  local row = row_of(seq)
  if not row then return '' end
  local _, _, _, extra = cmsgpack.unpack_limit(row, 3, 19)
  return extra.o
end

local function new_record(verb, state, worker)
  local made = { verb = verb, state = state, worker = worker or '', seqs = {}, attempts = {} }
  records[#records + 1] = made
  return made
end

local function note(verb, state, seq, attempts, worker, detail, kind, own)
  if recorded[seq] then open_records, recorded = {}, {} end -- a message that moves twice must have its last transition last
  recorded[seq] = true
  local name = verb .. '|' .. (state or '-') .. '|' .. (worker or '')
  local r = open_records[name]
  if not r then
    r = new_record(verb, state, worker)
    open_records[name] = r
  end
  local i = #r.seqs + 1
  r.seqs[i], r.attempts[i] = seq, attempts
  if kind then
    r.types = r.types or {}
    r.types[i] = kind
  end
  if detail and detail ~= '' then
    r.details = r.details or {}
    r.details[i] = detail
  end
  if is_own(seq) then
    r.own = r.own or {}
    r.own[i] = own or own_id(seq)
  end
end

local function folded(list) -- one value, if all are the same
  if type(list) ~= 'table' then return list end
  local first = list[1]
  for i = 2, #list do
    if list[i] ~= first then return list end
  end
  return first
end

local function filled(list, count) -- holes become ''
  if type(list) ~= 'table' then return list or false end
  for i = 1, count do list[i] = list[i] or '' end
  return list
end

local function packed_own(list, count) -- ids that share a prefix: the prefix, then the rest of each
  list = filled(list, count)
  if not list then return false end
  local begin = list[1]:sub(1, 26)
  local ends = {}
  for i, id in ipairs(list) do
    if #id ~= 36 or id:sub(1, 26) ~= begin then return list end
    ends[i] = id:sub(27)
  end
  return begin .. table.concat(ends)
end

local function packed_seqs(seqs) -- consecutive numbers become {first, count}
  local count = #seqs
  if count > 2 and seqs[1]:sub(1, 11) == seqs[count]:sub(1, 11)
    and tonumber(seqs[count]:sub(12), 16) - tonumber(seqs[1]:sub(12), 16) == 2 * (count - 1) then
    local even = true
    for i = 2, count do
      if seqs[i] <= seqs[i - 1] then even = false break end
    end
    if even then return { seqs[1], count } end
  end
  return table.concat(seqs)
end

local guarded = false
local function guard() -- a write before the first removal: if memory is out, the script fails here, not half-way
  if not guarded then call('HSET', K .. 'n', 'at', now) end
  guarded = true
end

local ends = {} -- number -> status in `x` of messages that ended in this script; its last value is their journal offset

local function finish()
  local last = 0
  for _, r in ipairs(records) do
    local count = #r.seqs
    if count > 0 then
      last = call('HINCRBY', K .. 'n', 'end', count)
      call('XADD', K .. 'j', string.format('%.0f-%d', last, count), 'a', now, 'r', encode({
        r.verb, r.state or false, r.worker, packed_seqs(r.seqs), folded(r.attempts), folded(filled(r.types, count)),
        filled(r.details, count), packed_own(r.own, count),
      }))
    end
  end
  for seq, x in pairs(ends) do
    x[6] = last
    write_status(seq, x)
  end
  if block_changed and block then
    call('HSET', K .. 'n', 'ms', last_ms, 'no', last_no, 'block', block, 'size', block_size)
  elseif numbers_changed then
    call('HSET', K .. 'n', 'ms', last_ms, 'no', last_no)
  end
  return last
end
