-- Common to all scripts: the keys of the tag, the time, and calls with many arguments, in pieces.
-- KEYS[1]: the tag, such as {tampu:default:emails}. All keys a script touches begin with it, so they share a slot.
-- KEYS[2]: the tag and ':~', which never exists. While a slot is being moved, servers refuse a script with two missing
-- keys; with one they would redirect it to the new server, which has only a part of the slot's keys yet.
-- ARGV[1]: microseconds since 1970, or '' to ask the server.
local K = KEYS[1] .. ':'
local call, encode, decode = redis.call, cmsgpack.pack, cmsgpack.unpack
local now = tonumber(ARGV[1])
if not now then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

local byte, sub, format = string.byte, string.sub, string.format

local function text_of(n) return format('%.0f', n) end -- a number as text: ten times cheaper as an argument than a number

local PIECE = 4000 -- Lua's stack holds some 8000 values

local function many(command, name, list)
  for i = 1, #list, PIECE do
    call(command, K .. name, unpack(list, i, math.min(i + PIECE - 1, #list)))
  end
end

local function fetch(name, fields)
  if #fields == 0 then return {} end
  if #fields <= PIECE then return call('HMGET', K .. name, unpack(fields)) end
  local found = {}
  for i = 1, #fields, PIECE do
    for _, value in ipairs(call('HMGET', K .. name, unpack(fields, i, math.min(i + PIECE - 1, #fields)))) do
      found[#found + 1] = value
    end
  end
  return found
end
