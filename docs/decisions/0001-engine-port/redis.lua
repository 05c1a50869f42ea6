#!lua name=tampu
-- The engine port on Redis: every verb, as tried out on Redis 7.0. A sketch for decision 0001, not an engine.
-- FCALL tampu_run 1 {tampu:<tenant>:<queue>} <msgpack: calls of one run for this queue>  ->  msgpack: replies
-- m: seq -> packed message   x: seq -> packed index row   n: numbers   key, idem, own, lane: look-ups   j: journal
-- ready: by member (rank, pos, seq)   delayed, leased, dead, done, cancelled, expired: by time   held: by seq
local K, now, notes = nil, 0, {}
local function call(...) return redis.call(...) end
local function pack(v) return cmsgpack.pack(v) end
local function unpack(s) return cmsgpack.unpack(s) end
local function key(name) return K .. ':' .. name end
local function number(name, by) return call('HINCRBY', key('n'), name, by) end
local function hex(n) return string.format('%014x', n) end
local function message(seq) local raw = call('HGET', key('m'), seq) return raw and unpack(raw) end

local function note(verb, state, seq, attempt, worker, detail)
  local id = verb .. '|' .. state .. '|' .. (worker or '')
  local r = notes[id] or { verb, state, worker or '', {}, {}, {} }
  notes[id] = r
  r[4][#r[4] + 1] = seq; r[5][#r[5] + 1] = attempt; r[6][#r[6] + 1] = detail or ''
end

local function write_journal()
  for _, r in pairs(notes) do
    call('XADD', key('j'), (number('end', #r[4]) - #r[4] + 1) .. '-0', 'at', now, 'r', pack(r))
  end
end

local function put(seq, m, state, row, score)  -- into the index of a state
  row.s, row.p = state, seq
  if state == 'ready' then  -- milliseconds for ageing, biased: all of it exact below 2^53
    row.p, score = hex(m.rank + 2 ^ 52) .. hex(number('pos', 1)) .. seq, 0
  end
  call('HSET', key('x'), seq, pack(row))
  call('ZADD', key(state), score or now, row.p)
  number(state, 1)
  if state == 'ready' or state == 'delayed' or state == 'held' then
    if m.key then call('HSETNX', key('key'), m.key, seq) end
    if m.expires then call('ZADD', key('expiry'), m.expires, seq) end
  end
end

local function take(seq, ...)  -- out of its index, if it is in one of these
  local raw = call('HGET', key('x'), seq)
  local row = raw and unpack(raw)
  for _, state in ipairs(row and { ... } or {}) do
    if row.s == state then
      call('ZREM', key(state), row.p)
      number(state, -1)
      local m = message(seq)
      if m.key and call('HGET', key('key'), m.key) == seq then call('HDEL', key('key'), m.key) end
      if m.expires then call('ZREM', key('expiry'), seq) end
      if m.lane then call('ZREM', key('lanes'), m.lane .. '\0' .. seq) end
      return row, m
    end
  end
  return nil, row
end

local function start(seq, m, row, run)
  local state = run and run > now and 'delayed' or 'ready'
  put(seq, m, state, row, run)
  return state
end

local function admit(seq, m, row, run)  -- or wait for the turn of its group
  if m.lane and call('HSETNX', key('lane'), m.lane, seq) == 0 and call('HGET', key('lane'), m.lane) ~= seq then
    call('ZADD', key('lanes'), 0, m.lane .. '\0' .. seq)
    row.r, row.run = 'group', run
    put(seq, m, 'held', row, tonumber(seq, 16))
    return 'held'
  end
  return start(seq, m, row, run)
end

local function leave(seq, m)  -- its group moves on, in this same call
  if m.lane and call('HGET', key('lane'), m.lane) == seq then
    call('HDEL', key('lane'), m.lane)
    local next = call('ZRANGEBYLEX', key('lanes'), '[' .. m.lane .. '\0', '(' .. m.lane .. '\1', 'LIMIT', 0, 1)[1]
    if next then
      local s = next:sub(-14)
      local row, n = take(s, 'held')
      call('HSET', key('lane'), n.lane, s)
      note('free', start(s, n, row, row.run), s, row.a)
    end
  end
end

local function finish(seq, m, state, row) put(seq, m, state, row); leave(seq, m) end

local function fail(seq, row, outcome, error, trace)
  local raw = call('HGET', key('f'), seq)
  local all = raw and unpack(raw) or {}
  all[#all + 1] = { row.a, now, outcome, row.w or '', error or '', trace or '' }
  call('HSET', key('f'), seq, pack(all))
end

local function due(index, limit) return call('ZRANGEBYSCORE', key(index), '-inf', now, 'LIMIT', 0, limit) end

local function sweep(limit)
  local moved = 0
  for _, seq in ipairs(due('expiry', limit)) do
    local row, m = take(seq, 'ready', 'delayed', 'held')
    if row then finish(seq, m, 'expired', row); note('expire', 'expired', seq, row.a); moved = moved + 1 end
  end
  for _, seq in ipairs(due('leased', limit)) do
    local row, m = take(seq, 'leased')
    fail(seq, row, 'lease_expired')
    local to = row.c and 'cancelled' or row.a >= m.max and 'dead' or 'ready'
    if to == 'ready' then row.l = nil; put(seq, m, to, row) else row.r = 'lease_expired'; finish(seq, m, to, row) end
    note('reap', to, seq, row.a, row.w); moved = moved + 1
  end
  for _, seq in ipairs(due('delayed', limit)) do
    local row, m = take(seq, 'delayed')
    put(seq, m, 'ready', row); note('promote', 'ready', seq, row.a); moved = moved + 1
  end
  local next
  for _, index in ipairs({ 'expiry', 'leased', 'delayed' }) do
    local at = tonumber(call('ZRANGE', key(index), 0, 0, 'WITHSCORES')[2])
    if at and (not next or at < next) then next = at end
  end
  return { moved, next or false }
end

local verbs = { sweep = function(c) return sweep(c.limit) end }

function verbs.publish(c)  -- looks at everything before it writes anything: Lua cannot roll back
  local room, found, seen = math.huge, {}, {}
  if c.max_depth > 0 then
    room = c.max_depth
    for _, s in ipairs({ 'ready', 'delayed', 'leased', 'held' }) do room = room - number(s, 0) end
  end
  for i, it in ipairs(c.items) do
    local raw = it.idem and call('HGET', key('idem'), it.idem)
    local known = raw and unpack(raw)
    if known and known[2] > now then found[i] = known[1]
    elseif it.own and call('HGET', key('own'), it.own) then found[i] = call('HGET', key('own'), it.own)
    elseif not (it.key and (seen[it.key] or call('HEXISTS', key('key'), it.key) == 1)) then
      room = room - 1
      if it.key then seen[it.key] = true end
    end
  end
  if room < 0 then return { error = 'queue_full' } end
  local out = {}
  for i, it in ipairs(c.items) do
    local seq = found[i]
    local old = not seq and it.key and call('HGET', key('key'), it.key)
    if old then
      local m = message(old); m.body = it.body
      call('HSET', key('m'), old, pack(m)); note('replace', 'ready', old, 0)
    elseif not seq then
      seq = hex(number('seq', 1))
      local rank = 0
      if it.ordering == 'priority' then
        rank = it.ageing > 0 and math.floor((now - it.priority * it.ageing) / 1000) or -it.priority
      elseif it.ordering == 'deadline' then rank = it.deadline or 2 ^ 52 - 1 end
      local m = { rank = rank, created = now, max = it.max, expires = it.ttl and now + it.ttl, key = it.key,
        lane = it.lane, own = it.own, priority = it.priority, deadline = it.deadline, body = it.body }
      call('HSET', key('m'), seq, pack(m))
      if it.own then call('HSET', key('own'), it.own, seq) end
      local run, to = it.delay and now + it.delay or it.run, 'held'
      if it.hold then put(seq, m, to, { a = 0, r = it.hold, run = run }, tonumber(seq, 16))
      else to = admit(seq, m, { a = 0 }, run) end
      note('publish', to, seq, 0, nil, it.type)
    end
    seq = seq or old
    if it.idem and not found[i] then call('HSET', key('idem'), it.idem, pack({ seq, now + it.window })) end
    out[i] = seq
  end
  return out
end

function verbs.claim(c)
  sweep(1000)
  local room, out = c.limit, {}
  if c.in_flight > 0 then room = math.min(room, c.in_flight - number('leased', 0)) end
  local tokens
  if c.rate > 0 then
    local t = call('HMGET', key('n'), 'tokens', 'tokens_at')
    tokens = t[1] and math.min(c.burst, t[1] + (now - t[2]) * c.rate / 1e6) or c.burst
    room = math.min(room, math.floor(tokens + 1e-9))
  end
  if room > 0 then
    local popped = call('ZPOPMIN', key('ready'), room)
    for i = 1, #popped, 2 do
      local seq = popped[i]:sub(-14)
      local row, m = take(seq, 'ready')
      row.a, row.l, row.w = row.a + 1, c.lease, c.worker
      put(seq, m, 'leased', row, now + c.lease_us)
      note('claim', 'leased', seq, row.a, c.worker)
      out[#out + 1] = { seq, now + c.lease_us, row.a, m }
    end
  end
  if tokens then call('HSET', key('n'), 'tokens', tokens - #out, 'tokens_at', now) end
  return out
end

function verbs.settle(c)
  local out = {}
  for i, it in ipairs(c.items) do
    local raw = call('HGET', key('x'), it.seq)
    local row = raw and unpack(raw)
    if not row or row.l ~= it.lease then out[i] = 'lease_lost'
    elseif row.s ~= 'leased' then out[i] = row.v == it.verb and row.s or 'lease_lost'  -- the same again
    else
      local _, m = take(it.seq, 'leased')
      row.v = it.verb
      local wait = it.delay or #it.delays > 0 and it.delays[math.min(row.a, #it.delays)] * it.spread or 0
      local to = it.verb == 'ack' and 'done' or it.verb == 'reject' and 'dead' or row.c and 'cancelled'
        or it.verb == 'release' and 'ready' or row.a >= m.max and 'dead' or wait > 0 and 'delayed' or 'ready'
      if it.verb == 'release' then row.a = row.a - 1 end
      if it.verb == 'nack' or it.verb == 'reject' then fail(it.seq, row, it.verb, it.error, it.trace) end
      if it.result then call('HSET', key('r'), it.seq, pack({ now + it.result_ttl, it.result })) end
      if to == 'dead' then row.r = it.verb == 'reject' and it.reason or 'retries_exhausted' end
      if to == 'ready' or to == 'delayed' then put(it.seq, m, to, row, now + math.floor(wait))
      else finish(it.seq, m, to, row) end
      note(it.verb, to, it.seq, row.a, row.w, it.error)
      out[i] = to
    end
  end
  return out
end

function verbs.extend(c)
  local out = {}
  for i, it in ipairs(c.items) do
    local raw = call('HGET', key('x'), it.seq)
    local row = raw and unpack(raw)
    if row and row.s == 'leased' and row.l == it.lease then
      call('ZADD', key('leased'), now + it.lease_us, it.seq)
      out[i] = { now + it.lease_us, row.c or false }
    else out[i] = 'lease_lost' end
  end
  return out
end

local function each(c, act)
  local out = {}
  for i, seq in ipairs(c.seqs) do out[i] = act(seq) or 'invalid_state' end
  return out
end

function verbs.cancel(c)
  return each(c, function(seq)
    local row, m = take(seq, 'ready', 'delayed', 'held')
    if row then
      finish(seq, m, 'cancelled', row); note('cancel', 'cancelled', seq, row.a)
      return 'cancelled'
    end
    if m and m.s == 'leased' then  -- the second answer of take is the row, when it was elsewhere
      m.c = true; call('HSET', key('x'), seq, pack(m)); note('ask_cancel', 'leased', seq, m.a)
      return 'leased'
    end
    return m and m.s == 'cancelled' and 'cancelled'
  end)
end

function verbs.replay(c)
  return each(c, function(seq)
    local row, m = take(seq, 'dead')
    if not row then return end
    if m.expires and m.expires <= now then m.expires = nil; call('HSET', key('m'), seq, pack(m)) end
    local to = admit(seq, m, { a = 0 })
    note('replay', to, seq, 0)
    return to
  end)
end

function verbs.free(c)
  return each(c, function(seq)
    local raw = call('HGET', key('x'), seq)
    if raw and unpack(raw).r == 'group' then return end
    local row, m = take(seq, 'held')
    if not row then return end
    local to = admit(seq, m, row, row.run)
    note('free', to, seq, row.a)
    return to
  end)
end

local function forget(seq) for _, h in ipairs({ 'm', 'x', 'f', 'r' }) do call('HDEL', key(h), seq) end end

function verbs.purge(c)
  local gone = call('ZRANGE', key(c.state), 0, c.limit - 1)
  for _, member in ipairs(gone) do
    local seq = member:sub(-14)
    local row, m = take(seq, c.state)
    leave(seq, m); forget(seq); note('purge', '', seq, row.a)
  end
  return #gone
end

function verbs.trim(c)
  local n = 0
  for _, state in ipairs({ 'done', 'cancelled', 'expired' }) do
    for _, seq in ipairs(call('ZRANGEBYSCORE', key(state), '-inf', now - c.keep, 'LIMIT', 0, c.limit)) do
      take(seq, state); forget(seq); n = n + 1
    end
  end
  call('XTRIM', key('j'), 'MINID', '~', c.journal_first)
  return n
end

function verbs.rerank(c)  -- the cursor of HSCAN is the `after` of the port: a number, 0 at the start
  local page = call('HSCAN', key('m'), c.after, 'COUNT', c.limit)
  for i = 1, #page[2], 2 do
    local seq, m = page[2][i], unpack(page[2][i + 1])
    m.rank = c.ordering == 'priority' and (c.ageing > 0 and math.floor((m.created - m.priority * c.ageing) / 1000)
      or -m.priority) or c.ordering == 'deadline' and (m.deadline or 2 ^ 52 - 1) or 0
    call('HSET', key('m'), seq, pack(m))
    local row = unpack(call('HGET', key('x'), seq))
    if row.s == 'ready' then  -- keeps its pos
      call('ZREM', key('ready'), row.p)
      row.p = hex(m.rank + 2 ^ 52) .. row.p:sub(15)
      call('ZADD', key('ready'), 0, row.p); call('HSET', key('x'), seq, pack(row))
    end
  end
  return tonumber(page[1]) ~= 0 and tonumber(page[1]) or false
end

-- Documents: the same function, with the tenant's tag {tampu:<tenant>} as its key.
function verbs.put_document(c)
  local raw = call('HGET', key('doc'), c.kind .. '/' .. c.name)
  local version = raw and unpack(raw)[1] or 0
  if c.version and c.version ~= version then return { error = 'version_conflict' } end
  version = number('revision', 1)
  call('HSET', key('doc'), c.kind .. '/' .. c.name, pack({ version, c.value }))
  return version
end

function verbs.delete_document(c)
  local gone = call('HDEL', key('doc'), c.kind .. '/' .. c.name) == 1
  if gone then number('revision', 1) end
  return gone
end

redis.register_function('tampu_run', function(keys, args)
  K, notes = keys[1], {}
  local t = call('TIME')
  now = args[2] and tonumber(args[2]) or t[1] * 1000000 + t[2]
  local out = {}
  for i, c in ipairs(unpack(args[1])) do out[i] = verbs[c.verb](c) end
  write_journal()
  return pack(out)
end)
