-- Units whose other slots may not have done their part (see unit.lua).
local AGAIN = 5000000 -- microseconds until others are told of them

local function take_intents(limit)
  local found = {}
  for _, name in ipairs(call('ZRANGEBYSCORE', K .. 'intents.at', '-inf', whole(now), 'LIMIT', 0, limit)) do
    call('ZADD', K .. 'intents.at', whole(now + AGAIN), name)
    found[#found + 1], found[#found + 2] = name, call('HGET', K .. 'intents', name)
  end
  return found
end
