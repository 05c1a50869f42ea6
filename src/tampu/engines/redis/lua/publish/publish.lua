-- publish: store messages in ready, delayed or held, all or none. Reads everything before it writes anything.
-- needs: base blocks runs journal moves stored_numbers
-- KEYS  1: tag of the queue
-- ARGV  1: now   2: max_depth (0: no limit)   3: msgpack [item, …]   4 …: their packed bodies; then how long to
--       remember that own ids with an id prefix were stored, or 0; then slots of a group, or -1 to leave the limits;
--       then its rate and burst; then 1 to only check whether the call would be refused. An item is a map:
--       t type, a max_attempts, r rank (16 hex) or g the base that the time is added to (two halves of 32 bits), d delay,
--       u run_at, l ttl, e latest expiry, k key, n group that keeps order or has slots, h hold reason,
--       p [priority, deadline, group, hold, own max_attempts, dead at its deadline] if one is set,
--       o own id, oc token of its reservation, f another queue has a message with the own id (2: leave the item out),
--       i idempotency key, id digest of the body, iw its window,
--       x [state, reason, error or false]: it is held, and ends at once, c hash of tenant and correlation id
-- Returns {newly_ready, due, whether the queue is new, now, answer, …}, or {0, nil, 0, now, 'full'}, {…, 'conflict'},
--       {…, 'taken'}: see f, {…, 'void', token, …}: these reservations were voided meanwhile, nothing was stored. A check
--       that would not be refused: {0, nil, 0, now}.
--       An answer is {'new', seq, state, run_at, expires} or {'again', seq, m, x, last error}
--       or {'gone', seq, own id}: known by its idempotency key or left out (see f), but not here.
-- `idem`: idempotency key -> [until, digest, seq, own id]; by time in `idem.until`. `void`: see void_reservation.lua.
local items = decode(ARGV[3])
local most_messages = tonumber(ARGV[2])
local depth = most_messages > 0 and depth_now() or 0
keep_stored = tonumber(ARGV[4 + #items])

local function number_of(id) return tonumber(id:sub(27), 16) end

local function is_stored(id) -- true even if it was removed since
  return keep_stored > 0 and id_prefix_of(id) and stored_before(id_prefix_of(id), number_of(id))
end

local function open_idem(key) -- the entry, if its window is open
  local raw = call('HGET', K .. 'idem', key)
  local entry = raw and decode(raw)
  if entry and entry[1] > now then return entry end
end

local void, ids, owns, keys = {}, {}, {}, {}
for i, item in ipairs(items) do
  item.b = ARGV[3 + i]
  local known = false
  if item.i then
    item.iw = now + item.iw
    local entry = ids[item.i] or open_idem(item.i)
    if entry then
      if entry[2] ~= item.id then return { 0, false, 0, now, 'conflict' } end
      known = true
    end
  end
  if item.f == 1 and not known and not is_stored(item.o) then return { 0, false, 0, now, 'taken' } end
  if item.f then
    known = true
  elseif item.o and not known then
    if call('HGET', K .. 'void', 'o' .. item.o) == item.oc then void[#void + 1] = item.oc end
    known = owns[item.o] or call('HEXISTS', K .. 'own', item.o) == 1 or is_stored(item.o)
  end
  if not known and item.x then
    if item.i and item.iw > now then ids[item.i] = { item.iw, item.id } end
    if item.o then owns[item.o] = true end
  elseif not known then
    if not (item.k and (keys[item.k] or call('HEXISTS', K .. 'key', item.k) == 1)) then
      depth = depth + 1
      if most_messages > 0 and depth > most_messages then return { 0, false, 0, now, 'full' } end
    end
    if item.k then keys[item.k] = true end
    if item.i and item.iw > now then ids[item.i] = { item.iw, item.id } end
    if item.o then owns[item.o] = true end
  end
end
if #void > 0 then return { 0, false, 0, now, 'void', unpack(void, 1, 1000) } end
if ARGV[8 + #items] == '1' then return { 0, false, 0, now } end

local function rank_for(item)
  if item.r then return item.r end
  local low = item.g[2] + now % 4294967296
  local high = item.g[1] + math.floor(now / 4294967296)
  if low >= 4294967296 then low, high = low - 4294967296, high + 1 end
  if high >= 3221225472 then return 'c000000000000000' end
  if high < 1073741824 then return '4000000000000000' end
  return string.format('%08x%08x', high, low)
end

local function remember(item, seq, own)
  if item.i and item.iw > now then
    call('HSET', K .. 'idem', item.i, encode({ item.iw, item.id, seq, own or '' }))
    call('ZADD', K .. 'idem.until', item.iw, item.i)
  end
end

local function again(seq)
  local row = row_of(seq)
  return row and { 'again', seq, row, raw_status(seq), call('HGET', K .. 'e', seq) }
end

local function store(item)
  local seq = number()
  if item.o then seq = seq:sub(1, 15) .. string.format('%x', tonumber(seq:sub(16), 16) + 1) end
  local rank = rank_for(item)
  local expires = item.l and now + item.l
  if item.e and (not expires or item.e < expires) then expires = item.e end
  local run_at = item.d and now + item.d or item.u
  if run_at and run_at <= now then run_at = nil end
  local flags, extra = 0, nil
  if expires or item.k or item.n or item.o or item.p or item.c then
    extra = { e = expires, k = item.k, l = item.n, o = item.o, p = item.p, c = item.c }
    flags = ((expires or item.k) and 1 or 0) + (item.n and 2 or 0) + (item.o and 4 or 0)
      + (item.p and 8 or 0) + (item.c and 16 or 0)
  end
  if item.c then correlate(seq, item.c) end
  local row = with_head(rank, flags, now, item.a, extra, item.b)
  call('HSET', K .. block_for(sub(seq, 1, 11), 1), seq, row)
  if item.o then
    call('HSET', K .. 'own', item.o, seq)
    if id_prefix_of(item.o) then call('HINCRBY', K .. 'stems', id_prefix_of(item.o), 1) end
  end
  remember(item, seq, item.o)
  if item.x then
    note('publish', HELD, seq, 0, nil, nil, item.t)
    end_waiting(item.x[1], seq, 0, item.x[2], item.x[3])
    return { 'new', seq, item.x[1], false, expires or false }
  end
  restore_marks(seq, row)
  local to
  local may, at = not item.h, run_at
  if may then may, at = take_slot(seq, run_at, item.n) end
  if may then run_at = at and at > now and at or nil end
  if item.h then
    to = hold(seq, 0, run_at, item.h)
  elseif not may then
    to = hold(seq, 0, run_at, 'group', item.n)
  elseif run_at then
    to = enter_delayed(seq, run_at, 0, '')
  elseif rank == FAIR then
    to = enter_ready(seq, rank, 0, '')
  else
    call('ZADD', K .. 'ready', 0, rank .. seq)
    if rank ~= FIFO then call('ZADD', K .. 'aged', 0, seq) end
    newly_ready, to = newly_ready + 1, READY
  end
  note('publish', to, seq, 0, nil, nil, item.t)
  return { 'new', seq, to, run_at or false, expires or false }
end

local function answer(item)
  local entry = item.i and open_idem(item.i)
  if entry then return again(entry[3]) or { 'gone', entry[3], entry[4] } end
  if item.f then return { 'gone', string.rep('0', 16), item.o } end
  local own = item.o and call('HGET', K .. 'own', item.o)
  if own then return again(own) end
  if item.o and is_stored(item.o) then return { 'gone', string.rep('0', 16), item.o } end
  local holder = item.k and not item.x and call('HGET', K .. 'key', item.k)
  if holder then
    remember(item, holder, extra_of(row_of(holder)).o)
    replace_body(holder, item.b, item.t, nil, item.c)
    return again(holder)
  end
  return store(item)
end

load_numbers()
for _, item in ipairs(items) do
  if item.n and tonumber(ARGV[5 + #items]) >= 0 then
    set_limits(tonumber(ARGV[5 + #items]), tonumber(ARGV[6 + #items]), tonumber(ARGV[7 + #items]))
    break
  end
end
local answers = { 0, false, 0, now }
for i, item in ipairs(items) do answers[4 + i] = answer(item) end
for _, item in ipairs(items) do
  if item.o and id_prefix_of(item.o) then remember_stored(id_prefix_of(item.o), number_of(item.o)) end
end
finish()
answers[1], answers[2], answers[3] = newly_ready, due, is_new and numbers_changed and 1 or 0
return answers
