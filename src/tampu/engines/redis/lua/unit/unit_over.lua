-- unit_over: all slots have done their part of a unit: remove its intent.
-- needs: base
-- KEYS  1: the tag under which the unit is remembered
-- ARGV  1: now   2: name of the unit   3: how long it is remembered from now, 0: no longer
-- Returns 1
local keep = tonumber(ARGV[3])
call('HDEL', K .. 'intents', ARGV[2])
call('ZREM', K .. 'intents.at', ARGV[2])
local raw = call('HGET', K .. 'units', ARGV[2])
if raw and keep > 0 then
  local known = decode(raw)
  call('HSET', K .. 'units', ARGV[2], encode({ now + keep, known[2], known[3] }))
  call('ZADD', K .. 'units.until', text_of(now + keep), ARGV[2])
elseif raw then
  call('HDEL', K .. 'units', ARGV[2])
  call('ZREM', K .. 'units.until', ARGV[2])
end
return 1
