-- Units that may be incomplete in other slots (see unit.lua).
local AGAIN = 5000000 -- microseconds until another process gets them

local function take_intents(limit)
  local found = {}
  for _, name in ipairs(call('ZRANGEBYSCORE', K .. 'intents.at', '-inf', text_of(now), 'LIMIT', 0, limit)) do
    call('ZADD', K .. 'intents.at', text_of(now + AGAIN), name)
    found[#found + 1], found[#found + 2] = name, call('HGET', K .. 'intents', name)
  end
  return found
end
