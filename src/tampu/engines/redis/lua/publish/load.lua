-- load: store many simple messages under own ids with one prefix, ready at once and in order; all or none.
-- needs: base blocks runs journal moves stored_numbers
-- KEYS  1: tag of the queue
-- ARGV  1: now   2: max_depth (0: no limit)   3: id prefix (26 characters)   4: token of its reservation
--       5: max_attempts   6: msgpack [[number, …], [start of each body, …, end of the last], type (one, or one each),
--       [number whose id another queue has, …]]
--       7: the packed bodies, concatenated   8: how long to remember that these numbers were stored, or 0
-- Returns {newly_ready, due, whether the queue is new, number stored}, or {0, nil, 0, why nothing was stored}: 'full',
--       'taken' (another queue has an id), 'void' (its reservation is), 'asked' (another queue asked for one of the ids)
local most_messages, begin, most = tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[5])
local numbers, starts, types, elsewhere = unpack(decode(ARGV[6]))
if call('HGET', K .. 'void', 's' .. begin) == ARGV[4] then return { 0, false, 0, 'void' } end
local every, chosen = {}, {}
keep_stored = tonumber(ARGV[8])
for i, n in ipairs(numbers) do every[i] = begin .. string.format('%010x', n) end
local asked, taken = {}, {}
if call('EXISTS', K .. 'void') == 1 then -- single ids that another queue has perhaps taken meanwhile
  for i, id in ipairs(every) do asked[i] = 'o' .. id end
  asked = fetch('void', asked)
end
for _, n in ipairs(elsewhere) do taken[n] = true end
for i, known in ipairs(fetch('own', every)) do
  if not known and not stored_before(begin, numbers[i]) then
    if taken[numbers[i]] then return { 0, false, 0, 'taken' } end
    if asked[i] == ARGV[4] then return { 0, false, 0, 'asked' } end
    chosen[#chosen + 1] = i
  end
end
local count = #chosen
if count == 0 then return { 0, false, 0, 0 } end
if most_messages > 0 then
  if count + depth_now() > most_messages then return { 0, false, 0, 'full' } end
end
local prefix, no = series(count)
local head = '\150\176' .. FIFO .. '\4' .. encode(now, most)
local messages, owns, seqs, own, kinds = {}, {}, {}, {}, {}
for k, i in ipairs(chosen) do
  local seq, id = prefix .. string.format('%05x', no + 2 * k - 1), every[i]
  seqs[k], own[k], kinds[k] = seq, id, type(types) == 'table' and types[i] or types
  messages[2 * k - 1] = seq
  messages[2 * k] = head .. encode({ o = id }) .. ARGV[7]:sub(starts[i] + 1, starts[i + 1])
  owns[2 * k - 1], owns[2 * k] = id, seq
end
many('HSET', block_for(prefix, count), messages)
many('HSET', 'own', owns)
enter_run(prefix, no + 1, count)
call('HINCRBY', K .. 'stems', begin, count)
remember_stored(begin, numbers[#numbers])
local r = new_record('publish', READY)
r.seqs, r.attempts, r.types, r.own = seqs, 0, kinds, own
finish()
return { count, false, is_new and 1 or 0, count }
