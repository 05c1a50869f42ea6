-- import_messages: store messages of another store as they are, all or none. Reads everything before it writes anything.
-- needs: base blocks runs journal moves
-- KEYS  1: tag of the queue
-- ARGV  1: now   2: where they come from   3: msgpack [item, …]   4: msgpack [request, …]   5: slots of a group
--       6: its rate   7: its burst   8 …: for each item its packed body, its failures as in `f` or '', its result as in
--       `r` or ''. An item is a map: o own id, oc token of its reservation, f another queue has a message with the id,
--       s state, t type, n attempts, a max_attempts, r rank (16 hex), c created, u run_at, e expires, z when it ended,
--       y reason, l group, w waits for its turn, k key, hk it is the waiting message of its key,
--       p [priority, deadline, group, hold, own max_attempts, dead at its deadline] if one is set, le last error,
--       ru expiry of its result, h hash of tenant and correlation id. A request is a map: i idempotency key, id digest, iw end of its window, o id,
--       n its number if this queue made the id
-- Returns {newly_ready, due, whether the queue is new, number stored}, or {0, nil, 0, 'void', token, …}: these
--       reservations were voided meanwhile, nothing was stored.
local origin, items, requests = ARGV[2], decode(ARGV[3]), decode(ARGV[4])

local void, chosen = {}, {}
for i, item in ipairs(items) do
  if not item.f then
    if call('HGET', K .. 'void', 'o' .. item.o) == item.oc then void[#void + 1] = item.oc end
    if call('HEXISTS', K .. 'own', item.o) == 0 then chosen[#chosen + 1] = i end
  end
end
if #void > 0 then return { 0, false, 0, 'void', unpack(void, 1, 1000) } end

local function keep_history(seq, item, failures, result)
  if failures ~= '' then call('HSET', K .. 'f', seq, failures) end
  if item.le then call('HSET', K .. 'e', seq, item.le) end
  if result ~= '' then
    call('HSET', K .. 'r', seq, result)
    call('ZADD', K .. 'kept', item.ru, seq)
  end
end

local function enter_index(seq, item)
  if item.z then
    call('ZADD', K .. INDEX[item.s], item.z, seq)
    ends[seq] = { item.s, item.n, '', item.z, item.y or '', 0 }
    write_status(seq, ends[seq])
    return item.s
  end
  if item.e then
    call('ZADD', K .. 'expiry', item.e, seq)
    falls_due(item.e)
  end
  if item.hk then call('HSETNX', K .. 'key', item.k, seq) end
  if item.s == HELD and not item.w then return hold(seq, item.n, item.u, item.y) end
  return admit(seq, item.r, item.u, item.n, item.l)
end

local function store(item, body, failures, result)
  local seq = number()
  seq = seq:sub(1, 15) .. format('%x', tonumber(seq:sub(16), 16) + 1)
  local extra = { e = item.e, k = item.k, l = item.l, o = item.o, p = item.p, c = item.h }
  local flags = ((item.e or item.k) and 1 or 0) + (item.l and 2 or 0) + 4 + (item.p and 8 or 0) + (item.h and 16 or 0)
  if item.h then correlate(seq, item.h) end
  call('HSET', K .. block_for(sub(seq, 1, 11), 1), seq, with_head(item.r, flags, item.c, item.a, extra, body))
  call('HSET', K .. 'own', item.o, seq)
  if id_prefix_of(item.o) then call('HINCRBY', K .. 'stems', id_prefix_of(item.o), 1) end
  keep_history(seq, item, failures, result)
  note('adopt', enter_index(seq, item), seq, item.n, nil, origin, item.t, item.o)
end

local function remember(request)
  local raw = call('HGET', K .. 'idem', request.i)
  if request.iw <= now or (raw and decode(raw)[1] > now) then return end
  -- If the message is gone, any unused number will do.
  local seq = call('HGET', K .. 'own', request.o) or request.n or number()
  call('HSET', K .. 'idem', request.i, encode({ request.iw, request.id, seq, request.o }))
  call('ZADD', K .. 'idem.until', request.iw, request.i)
end

load_numbers()
local stored = 0
for _, i in ipairs(chosen) do
  if call('HEXISTS', K .. 'own', items[i].o) == 0 then -- the call may contain it twice
    if items[i].l then set_limits(tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])) end
    store(items[i], ARGV[5 + 3 * i], ARGV[6 + 3 * i], ARGV[7 + 3 * i])
    stored = stored + 1
  end
end
for _, request in ipairs(requests) do remember(request) end
finish()
return { newly_ready, due, is_new and numbers_changed and 1 or 0, stored }
