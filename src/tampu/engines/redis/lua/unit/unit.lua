-- unit: run the calls of a unit that are in one slot (without a cluster: all of them), all or none, once.
-- needs: base
-- contains: unit_check publish publish_simple cancel release_held settle extend change_documents
-- KEYS  1: the tag under which the unit is remembered
-- ARGV  1: now   2: name of the unit   3: how long it is remembered, 0: not at all   4: digest of the unit
--       5: the calls for other slots, or ''   6: time until maintenance checks whether those were done
--       7: msgpack [[script, tag, number of arguments, or - the step (from 1) that has the same], …]: checks first,
--       then the changes   8 …: their arguments
-- Returns {'done', answer, …} with an answer per change; {'again', answer, …}: it was done before; {'other'}: another
--       unit has this name; {'refused', step (from 1), answer}: nothing was changed
-- `units`: name -> [until, digest, answers]; by time in `units.until`. `intents`: name -> calls for other slots; by the
-- time of the next check in `intents.at`.
local SCRIPTS = {
  unit_check = unit_check, publish = publish, publish_simple = publish_simple, cancel = cancel,
  release_held = release_held, settle = settle, extend = extend, change_documents = change_documents,
}
local name, keep = ARGV[2], tonumber(ARGV[3])
local raw = keep > 0 and call('HGET', K .. 'units', name)
local known = raw and decode(raw)
if known and known[1] > now then
  if known[2] ~= ARGV[4] then return { 'other' } end
  return { 'again', unpack(known[3]) }
end

local steps, at = decode(ARGV[7]), 7
for _, step in ipairs(steps) do
  local arguments = { now }
  for i = 1, step[3] do arguments[1 + i] = ARGV[at + i] end
  if step[3] < 0 then arguments = steps[-step[3]].arguments else at = at + step[3] end
  step.keys, step.arguments = { step[2], step[2] .. ':~' }, arguments
end

for i, step in ipairs(steps) do -- all checks first: the changes below cannot be refused
  if step[1] == 'unit_check' then
    local answer = unit_check(step.keys, step.arguments)
    if answer[1] then return { 'refused', i, answer } end
  elseif step[1] == 'publish' then
    local last = #step.arguments + 1
    step.arguments[last] = '1'
    local answer = publish(step.keys, step.arguments)
    step.arguments[last] = nil
    if answer[5] then return { 'refused', i, answer } end
  end
end

call('HSET', K .. 'units', name, '') -- if memory is out, the script fails here, not half-way
local answers = {}
for _, step in ipairs(steps) do
  if step[1] ~= 'unit_check' then answers[#answers + 1] = SCRIPTS[step[1]](step.keys, step.arguments) end
end
if ARGV[5] ~= '' then
  call('HSET', K .. 'intents', name, ARGV[5])
  call('ZADD', K .. 'intents.at', text_of(now + ARGV[6]), name)
end
if keep > 0 then
  call('HSET', K .. 'units', name, encode({ now + keep, ARGV[4], answers }))
  call('ZADD', K .. 'units.until', text_of(now + keep), name)
else
  call('HDEL', K .. 'units', name)
end
for _, spent in ipairs(call('ZRANGEBYSCORE', K .. 'units.until', '-inf', text_of(now), 'LIMIT', 0, 10)) do
  call('HDEL', K .. 'units', spent)
  call('ZREM', K .. 'units.until', spent)
end
return { 'done', unpack(answers) }
