-- settle: end leases with ack, nack, reject or release, one after the other.
-- needs: base blocks runs journal moves
-- KEYS  1: tag of the queue
-- ARGV  1: now   2: msgpack [[wait, …], …]: tables of waits   3: msgpack [item, …]   4 …: results. An item is a map:
--       v verb (a ack, n nack, x reject, r release), s number, l lease, d delay, t index of its table of waits (from 1),
--       f factor for the wait, b index of the result (from 1), bt how long it is kept, y reason, e error, w traceback,
--       g first line of the error, m new max_attempts of the message, h hold reason of a release
-- Returns {newly_ready, due, answer, …}: {state, own id or ''}, or {-1}: this is not the current lease of its message.
-- A repeated settle with the same receipt and verb gets the same answer again (see the settle marker in `x`).
-- `r`: number -> 16 digits of its expiry, then the result; `kept`: by that time.
local tables, items = decode(ARGV[2]), decode(ARGV[3])
local VERB = { a = 'ack', n = 'nack', x = 'reject', r = 'release' }

local function wait_of(item, attempts)
  if item.d then return item.d end
  local waits = item.t and tables[item.t] or {}
  if #waits == 0 then return 0 end
  return math.floor(waits[math.min(attempts, #waits)] * item.f)
end

local function fail(item, x, row)
  local seq, attempts, worker = item.s, x[2], x[5]
  local marker, verb, detail = item.v .. item.l, VERB[item.v], item.g
  failed(seq, attempts, verb, worker, item.e, item.w)
  local created, most, extra = details(row)
  if item.m and item.m ~= most then
    most = item.m
    call('HSET', key_of('m', seq), seq, with_head(rank_of(row), flags_of(row), created, most, extra, body_of(row)))
  end
  if item.v == 'x' or (x[6] ~= 1 and attempts >= most) then
    local reason = item.v == 'x' and (item.y or 'unrecoverable') or 'retries_exhausted'
    finish_as(DEAD, seq, row, attempts, marker, reason)
    note(verb, DEAD, seq, attempts, worker, detail or reason)
    return DEAD
  end
  if x[6] == 1 then
    finish_as(CANCELLED, seq, row, attempts, marker)
    note('cancel', CANCELLED, seq, attempts, worker, detail)
    return CANCELLED
  end
  local wait, to = wait_of(item, attempts), nil
  if wait > 0 then
    to = enter_delayed(seq, now + wait, attempts, marker)
    leave_for_retry(seq, extra_of(row).l)
  else
    to = return_to_queue(seq, rank_of(row), attempts, marker, group_of(row))
  end
  restore_marks(seq, row)
  note(verb, to, seq, attempts, worker, detail)
  return to
end

local function release(item, x, row)
  local seq, attempts, marker = item.s, x[2] - 1, item.v .. item.l
  if x[6] == 1 then
    finish_as(CANCELLED, seq, row, attempts, marker)
    note('cancel', CANCELLED, seq, attempts)
    return CANCELLED
  end
  local to
  if item.h then
    to = hold(seq, attempts, nil, item.h, nil, marker)
    leave_group(seq, extra_of(row).l)
  elseif item.d and item.d > 0 then
    to = enter_delayed(seq, now + item.d, attempts, marker)
    leave_for_retry(seq, extra_of(row).l)
  else
    to = return_to_queue(seq, rank_of(row), attempts, marker, group_of(row))
  end
  restore_marks(seq, row)
  note('release', to, seq, attempts, x[5], item.h)
  return to
end

local function ack(item, x, row)
  if item.b then
    call('HSET', K .. 'r', item.s, string.format('%016.0f', now + item.bt) .. ARGV[3 + item.b])
    call('ZADD', K .. 'kept', now + item.bt, item.s)
  end
  finish_as(DONE, item.s, row, x[2], 'a' .. item.l)
  note('ack', DONE, item.s, x[2])
  return DONE
end

local ACT = { a = ack, n = fail, x = fail, r = release }
local answers = { 0, false }
for i, item in ipairs(items) do
  local raw = raw_status(item.s)
  local x = raw and decode(raw)
  if x and x[1] == LEASED and x[3] == item.l then
    guard()
    local row = row_of(item.s)
    call('ZREM', K .. 'leased', item.s)
    answers[2 + i] = { ACT[item.v](item, x, row), is_own(item.s) and own_id(item.s) or '' }
  elseif x and x[1] ~= LEASED and x[3] == item.v .. item.l then
    answers[2 + i] = { x[1], is_own(item.s) and own_id(item.s) or '' }
  else
    answers[2 + i] = { -1 }
  end
end
finish()
answers[1], answers[2] = newly_ready, due
return answers
