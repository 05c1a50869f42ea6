-- The highest number stored in this queue per id prefix, even if the messages are gone since: for callers that store
-- messages in order and cannot record their progress in the same step.
-- `loaded`: id prefix -> number; by time in `loaded.until`.
local keep_stored, stored = 0, {} -- how long to remember; 0: not at all

local function stored_upto(id_prefix)
  if not stored[id_prefix] then stored[id_prefix] = tonumber(call('HGET', K .. 'loaded', id_prefix) or -1) end
  return stored[id_prefix]
end

local function stored_before(id_prefix, number) return keep_stored > 0 and number <= stored_upto(id_prefix) end

local function remember_stored(id_prefix, number)
  if keep_stored > 0 and number > stored_upto(id_prefix) then
    stored[id_prefix] = number
    call('HSET', K .. 'loaded', id_prefix, text_of(number))
    call('ZADD', K .. 'loaded.until', text_of(now + keep_stored), id_prefix)
  end
end
